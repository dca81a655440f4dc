"""A rank above 0: follow the worker of rank 0 through one cell after another. ``python -m looprepro.training.rank``

It reads no manifest and writes no file. Signals are rank 0's business: it decides when to stop and says so here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

import torch

from looprepro.config.cell import Cell, Execution
from looprepro.training.distributed import Ranks, join
from looprepro.training.families import family
from looprepro.training.place import Place, place
from looprepro.training.run import prepare

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)
POLL_SECONDS = 1.0


def follow(here: Place) -> int:
    """Meet rank 0, train what it trains, leave when it says so. The exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if torch.cuda.is_available():
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())  # a scheduler may show each task its own GPU only
    ranks = join(here, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    serve(ranks)
    torch.distributed.destroy_process_group()
    return 0


def serve(ranks: Ranks) -> None:
    """One cell after another, until rank 0 has no more."""
    while (job := ranks.tell()) is not None:
        cell = Cell.model_validate(job["cell"])
        execution = Execution.model_validate(job["execution"])
        follower = family(cell).follower
        assert follower is not None, "a family without followers is never told to have any"
        follower(cell, execution, prepare(execution), ranks).follow()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of a rank that rank 0 started."""
    parser = argparse.ArgumentParser(prog="python -m looprepro.training.rank")
    parser.add_argument("--parent", type=int, required=True, help="process id of rank 0's worker: end when it is gone")
    parent = parser.parse_args(arguments).parent
    threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()
    here = place()
    if here is None:
        print("no RANK and WORLD_SIZE in the environment: this is started by the worker, not by hand", file=sys.stderr)
        return 2
    return follow(here)


def _watch(parent: int) -> None:
    """A collective operation cannot be interrupted from Python, so an orphan ends the hard way."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
