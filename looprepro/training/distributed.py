"""Several processes ("ranks") that train one cell together: who they are, and the few words they exchange.

Rank 0 is the worker that holds the attempt; it alone reads and writes files. The others follow it
(``python -m looprepro.training.rank``, or any worker whose environment gives it a rank above 0). There are three ways in:

- rank 0 starts the others itself, on its own machine (``execution.ranks`` above 1 and nothing in the environment);
- torchrun: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set;
- SLURM tasks: ``srun`` with several tasks, read by submitit's environment.

Gradients are summed once per optimiser step after accumulation, without ``DistributedDataParallel``: the loop over depths has
other shapes at every micro-batch and some weights get no gradient, which is where its hooks are fragile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from looprepro.files.errors import ConfigError, StoreError
from looprepro.training.place import Place, place

TIMEOUT = timedelta(hours=1)
"""How long a rank waits for the others before it fails: longer than a checkpoint takes to write, or all measurements of a cell,
which rank 0 makes alone while ranks of torchrun and SLURM wait for the next cell."""
GRACE_SECONDS = 30.0
"""For a follower to end after it was sent home."""
BUCKET_BYTES = 1 << 26
"""Gradients are summed in pieces of this size."""
STEP, START, END = "step", "start", "end"
"""Words of rank 0 to the others: one more update; take over my weights and state; the cell is over."""

_met: list[bool] = []
"""Whether this process has ever been in a group of ranks: one that failed is not entered again."""


@dataclass
class Ranks:
    """The ranks of one cell, seen from one of them. ``Ranks()`` is a process alone: every exchange is then free."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    followers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _rendezvous: tempfile.TemporaryDirectory[str] | None = None

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over the ranks, in place; the same bits on all of them."""
        if self.count == 1:
            return
        self.check()
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by rank 0's, in place."""
        if self.count == 1:
            return
        for tensor in tensors:
            # NCCL moves nothing that lies on the CPU (AdamW's step counts do).
            staged = tensor.cuda() if dist.get_backend() == "nccl" and tensor.device.type == "cpu" else tensor
            dist.broadcast(staged, 0)
            if staged is not tensor:
                tensor.copy_(staged)

    def tell(self, value: Any = None) -> Any:
        """Rank 0's ``value`` on every rank (plain data)."""
        if self.count == 1:
            return value
        self.check()
        box = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]

    def check(self) -> None:
        """:class:`StoreError` where a rank that this process started has ended: better than to wait for it."""
        for number, process in enumerate(self.followers, 1):
            code = process.poll()
            if code is not None:
                raise StoreError(f"rank {number} of the cell ended with exit code {code}", "Run the same command again")

    def leave(self, *, failed: bool = False) -> None:
        """Rank 0, at the end of a cell. Followers that it started itself are gone afterwards; others wait for the next cell.

        ``failed``: in the middle of an exchange perhaps, so nothing more is said.
        """
        if self.count == 1:
            return
        if failed:
            _leave_group()
        else:
            self.tell(END)
            if self.followers:
                self.tell(None)
                _leave_group()
        for process in self.followers:
            try:
                process.wait(timeout=0 if failed else GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._rendezvous is not None:
            self._rendezvous.cleanup()
        self.followers, self.count = [], 1


def dismiss() -> None:
    """Rank 0 of ranks that torchrun or SLURM started: no more cells. They leave."""
    here = place()
    if here is None or here.rank > 0 or (_met and not dist.is_initialized()):
        return
    join(here, torch.device("cuda" if torch.cuda.is_available() else "cpu")).tell(None)
    _leave_group()


def lead(count: int, device: torch.device) -> Ranks:
    """Rank 0's end of ``count`` ranks; starts the others unless the environment says that they are there.

    :class:`ConfigError` where the environment has another number of them.
    """
    here = place()
    if here is not None:
        if here.count != count:
            raise ConfigError(
                f"the cell wants {count} ranks and was started with {here.count}",
                "Start as many tasks as execution.ranks says, or one",
            )
        return join(here, device)
    if count == 1:
        return Ranks()
    rendezvous = tempfile.TemporaryDirectory(prefix="looprepro-ranks-")
    file = (Path(rendezvous.name) / "store").as_uri()
    ranks = Ranks(0, count, 0, [], rendezvous)
    try:
        for rank in range(1, count):
            ranks.followers.append(_start(rank, count, file))
        join(Place(0, count, 0, file), device)
    except BaseException:  # the caller gets nothing that it could leave
        ranks.leave(failed=True)
        raise
    return ranks


def join(here: Place, device: torch.device) -> Ranks:
    """Meet the other ranks."""
    if not dist.is_initialized():
        _met.append(True)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, here.init_method, timeout=TIMEOUT, rank=here.rank, world_size=here.count)
    return Ranks(here.rank, here.count, here.local_rank)


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _start(rank: int, count: int, rendezvous: str) -> subprocess.Popen[bytes]:
    """A follower on this machine, in this process's group, so that what kills the one kills the other."""
    variables: Mapping[str, str] = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOOPREPRO_RENDEZVOUS": rendezvous,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-m", "looprepro.training.rank", "--parent", str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **variables})


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Tensors of one type each, in their order, up to :data:`BUCKET_BYTES`."""
    buckets: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        if not buckets or tensor.nbytes > room or tensor.dtype != buckets[-1][-1].dtype:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(tensor)
        room -= tensor.nbytes
    return buckets
