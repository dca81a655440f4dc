"""Which of the processes that train a cell together this one is, by its environment. No torch: a worker asks it first."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass

PORTS = range(20_000, 32_000)
"""Below Linux's ports for outgoing connections."""


@dataclass(frozen=True)
class Place:
    """Which of how many ranks a process is, by its environment."""

    rank: int
    count: int
    local_rank: int
    init_method: str


def place() -> Place | None:
    """This process's place by torchrun's variables, or those of a SLURM step with several tasks; None where it is alone."""
    variables = os.environ
    if int(variables.get("WORLD_SIZE", "1")) > 1:
        rank = int(variables["RANK"])
        method = variables.get("LOOPREPRO_RENDEZVOUS", "env://")
        return Place(rank, int(variables["WORLD_SIZE"]), int(variables.get("LOCAL_RANK", rank)), method)
    if int(variables.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        from submitit.slurm.slurm import SlurmJobEnvironment

        step = SlurmJobEnvironment()
        # A port that all tasks agree on without a word: drawn by the job's number.
        port = variables.get("MASTER_PORT") or str(PORTS.start + zlib.crc32(step.job_id.encode()) % len(PORTS))
        return Place(step.global_rank, step.num_tasks, step.local_rank, f"tcp://{step.hostnames[0]}:{port}")
    return None
