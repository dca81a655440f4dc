"""Cells per hour of the mini group-word cell on two cores, by the number of seeds that train as one stack.

    python benchmarks/stacking.py [--case mini-curriculum] [--sizes 1 2 5 10] [--repeats 5] [--json] [--no-file]

Two processes at once, a core each, as a sweep runs. Each takes the same training steps in turn with every stack size and with
benchmarks/reference_model.py, one seed at a time: a step of each word length of the curriculum, whose slices are equal, so that
a cell takes STEPS times their mean. Turns begin together on both cores, and ratios are taken per turn; evaluation is not in
them. Exits 1 where the best size gives less than 1.8 times the cells per hour of the reference. The machine should be
idle. Results: benchmarks/results/stacking.json; what was predicted: docs/stacking.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import sys
import time
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol

import torch
from cases import CASES, STEPS, Case, first_step, trainer
from machine import description, spread, write
from reference_model import Reference, loss_of

from looprepro.config.cell import Execution
from looprepro.training.run import prepare
from looprepro.training.schedule import learning_rate
from looprepro.training.stack import StackedTrainer
from looprepro.training.trainer import WordTrainer

CASE = "mini-curriculum"
BOUND = 1.8
"""Smallest ratio, over two plain single-process runs, that is good enough for this case."""
CORES = 2
REFERENCE = "reference"


class Steps(Protocol):
    """One or several cells in training."""

    step: int

    def train_step(self) -> object:
        """One update of each."""


class PlainRun:
    """The reference model in training; words, depths and x_0 are drawn as ours are."""

    def __init__(self, source: WordTrainer) -> None:
        self.source, self.step, training = source, 0, source.training
        self.model = Reference(source.config, source.task.vocabulary)
        self.model.take(dict(source.model.named_parameters()))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=training.lr, betas=training.betas, eps=training.eps)

    def train_step(self) -> None:
        training = self.source.training
        batch, depths = self.source.batch(self.step), self.source.sample_depths(self.step)
        state = self.source.initial_state(self.step, training.batch, batch.tokens.shape[1])
        self.optimizer.zero_grad()
        loss_of(self.model(batch.tokens, depths, state), batch.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), training.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(training, self.step)
        self.optimizer.step()
        self.step += 1


def runs(case: Case, sizes: list[int]) -> dict[str, Steps]:
    """By name: the reference, and a run or a stack of every size."""
    fused, plain = Execution(threads=1, device="cpu"), Execution(threads=1, device="cpu", kernels="plain")
    found: dict[str, Steps] = {REFERENCE: PlainRun(trainer(case.cell(), plain))}
    for size in sizes:
        members = [trainer(case.cell().model_copy(update={"seed": seed}), fused) for seed in range(size)]
        found[str(size)] = members[0] if size == 1 else StackedTrainer(members)
    return found


def work(barrier: Barrier, found: Any, case: Case, sizes: list[int], repeats: int) -> None:
    """One core's part: name -> per repeat, the seconds of one step of every word length."""
    prepare(Execution(threads=1, device="cpu"))
    made, cell = runs(case, sizes), case.cell()
    times = {name: [0.0] * repeats for name in made}
    for length in case.lengths:
        for repeat in range(-1, repeats):  # the first warms up
            for name, run in made.items():
                run.step = first_step(cell, length) + repeat + 1
                barrier.wait()
                start = time.perf_counter()
                run.train_step()
                if repeat >= 0:
                    times[name][repeat] += time.perf_counter() - start
    found.put(times)


def results_of(workers: list[Any], barrier: Barrier, found: Any) -> list[dict[str, list[float]]]:
    """What each process measured. One that died would leave the others waiting for it, so it ends them all."""
    cores: list[dict[str, list[float]]] = []
    while len(cores) < len(workers):
        try:
            cores.append(found.get(timeout=1.0))
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                barrier.abort()
                raise SystemExit("a process of the benchmark died; its own message is above") from None
    return cores


def measure(case: Case, sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """Per stack size and for the reference: cells per hour of both cores together, and the ratio to the reference."""
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(CORES), context.Queue()
    workers = [context.Process(target=work, args=(barrier, found, case, sizes, repeats)) for _ in range(CORES)]
    for worker in workers:
        worker.start()
    cores = results_of(workers, barrier, found)
    for worker in workers:
        worker.join()
    rates: dict[str, list[float]] = {}
    for name in cores[0]:
        seeds = 1 if name == REFERENCE else int(name)
        seconds = [[turn / len(case.lengths) * STEPS / seeds for turn in core[name]] for core in cores]  # per cell
        rates[name] = [sum(3600 / cell for cell in turn) for turn in zip(*seconds, strict=True)]
    return [
        {
            "run": name,
            "cells_per_hour": spread(rate),
            "ratio_to_reference": spread([r / plain for r, plain in zip(rate, rates[REFERENCE], strict=True)]),
            "ratio_to_one": spread([r / one for r, one in zip(rate, rates[str(sizes[0])], strict=True)]),
        }
        for name, rate in rates.items()
    ]


def main() -> int:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=list(CASES), default=CASE)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 2, 5, 10], help="seeds per stack; the first is the unit")
    parser.add_argument("--repeats", type=int, default=5, help="turns; each figure is their median")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-file", action="store_true", help="leave benchmarks/results alone")
    given = parser.parse_args()
    results = measure(CASES[given.case], given.sizes, given.repeats)
    bound = BOUND if given.case == CASE else None
    document = {
        "benchmark": "stacking",
        "machine": description(1, "float32") | {"processes": CORES},
        "case": given.case,
        "steps": STEPS,
        "repeats": given.repeats,
        "bound": bound,
        "results": results,
    }
    if not given.no_file:
        write("stacking", document)
    if given.json:
        print(json.dumps(document))
    else:
        print("run         cells per hour (lowest-highest)   to the reference   to one seed")
        for r in results:
            cells = r["cells_per_hour"]
            rate = f"{cells['median']:.1f} ({cells['lowest']:.1f}-{cells['highest']:.1f})"
            name = r["run"] if r["run"] == REFERENCE else f"S = {r['run']}"
            ratios = f"{r['ratio_to_reference']['median']:16.2f} {r['ratio_to_one']['median']:13.2f}"
            print(f"{name:11} {rate:31} {ratios}")
    best = max(r["ratio_to_reference"]["median"] for r in results)
    return int(bound is not None and best < bound)


if __name__ == "__main__":
    sys.exit(main())
