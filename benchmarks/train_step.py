"""How much faster a training step is than a plain eager implementation of the same model.

    python benchmarks/train_step.py [--cases mini mini-curriculum width-128] [--repeats 7] [--threads 1] [--json]

Ours is the trainer that cells use (draws, forward, backward, clipping, Adam); the reference is benchmarks/reference_model.py
on the same words, depths, x_0, initial weights and number format. Each runs in a process of its own; repeat i of both takes the
same training step, and the ratio of the two times is taken per repeat. Their losses must agree, to 1e-5 at
the first step and 1e-3 at the later ones. Exits 1 where a ratio is below its bound. The machine should be idle. Results:
benchmarks/results/train_step.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import torch
from cases import CASES, Case, first_step, trainer
from machine import description, spread, write
from reference_model import Reference, loss_of

from looprepro.config.cell import Execution
from looprepro.training.run import prepare
from looprepro.training.schedule import learning_rate

BOUNDS = {"mini": 1.8, "mini-curriculum": 1.8, "width-128": 2.0}
"""Case to the smallest ratio that is good enough."""


def ours(case: Case, length: int, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """(seconds, losses) of each step; the first step, which warms up, counts in neither but its loss does."""
    execution = Execution(threads=threads, device="cpu")
    prepare(execution)
    cell = case.cell()
    mine = trainer(cell, execution)
    mine.step = first_step(cell, length)
    times, losses = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        losses.append(float(mine.train_step().loss))
        times.append(time.perf_counter() - start)
    return times[1:], losses


def reference(case: Case, length: int, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """As :func:`ours`. The batch is drawn outside the clock; words, depths and x_0 are the trainer's."""
    torch.set_num_threads(threads)
    cell = case.cell()
    source = trainer(cell, Execution(threads=threads, device="cpu", kernels="plain"))
    model = Reference(cell.model, source.task.vocabulary)
    model.take(dict(source.model.named_parameters()))
    training = cell.training
    optimizer = torch.optim.Adam(model.parameters(), lr=training.lr, betas=training.betas, eps=training.eps)
    times, losses = [], []
    for step in range(first := first_step(cell, length), first + repeats + 1):
        rows = torch.arange(training.batch) + step * training.batch
        batch = source.task.examples(rows, step)
        depths, state = source.sample_depths(step), source.initial_state(step, training.batch, batch.tokens.shape[1])
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model(batch.tokens, depths, state), batch.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step)
        optimizer.step()
        losses.append(float(loss.detach()))
        times.append(time.perf_counter() - start)
    return times[1:], losses


def in_own_process(side: str, case: str, repeats: int, threads: int) -> dict[str, Any]:
    """Length -> {"seconds", "losses"} of one side."""
    command = [sys.executable, __file__, "--side", side, "--cases", case, "--repeats", str(repeats), "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(case: Case, repeats: int, threads: int) -> dict[str, Any]:
    """Both sides and their ratio; of several lengths, the ratio of the sums (equal slices of the curriculum)."""
    sides = {side: in_own_process(side, case.name, repeats, threads) for side in ("ours", "reference")}
    for length in map(str, case.lengths):
        losses = zip(sides["ours"][length]["losses"], sides["reference"][length]["losses"], strict=True)
        for step, (mine, theirs) in enumerate(losses):
            tolerance = (1e-3 if step else 1e-5) * abs(theirs)
            assert abs(mine - theirs) <= tolerance, f"{case.name}, length {length}, step {step}: loss {mine}, not {theirs}"
    sums = {
        side: [sum(times) for times in zip(*(found[str(n)]["seconds"] for n in case.lengths), strict=True)]
        for side, found in sides.items()
    }
    ratios = [theirs / mine for mine, theirs in zip(sums["ours"], sums["reference"], strict=True)]
    return {
        "case": case.name,
        "lengths": case.lengths,
        "ours_seconds": spread(sums["ours"]),
        "reference_seconds": spread(sums["reference"]),
        "ratio": spread(ratios),
        "bound": BOUNDS.get(case.name),
        "repeats": repeats,
    }


def main() -> int:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(BOUNDS))
    parser.add_argument("--repeats", type=int, default=7, help="steps timed; the ratio is their median")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (a cell trains with 1)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-file", action="store_true", help="leave benchmarks/results alone")
    parser.add_argument("--side", choices=["ours", "reference"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        run, case = {"ours": ours, "reference": reference}[given.side], CASES[given.cases[0]]
        measured = {n: run(case, n, given.repeats, given.threads) for n in case.lengths}
        found = {n: {"seconds": times, "losses": losses} for n, (times, losses) in measured.items()}
        print(json.dumps(found))
        return 0
    results = [compare(CASES[name], given.repeats, given.threads) for name in given.cases]
    document = {"benchmark": "train_step", "machine": description(given.threads, "float32"), "results": results}
    if not given.no_file:
        write("train_step", document)
    if given.json:
        print(json.dumps(document))
    else:
        print("case              lengths        ours s   reference s   ratio (lowest-highest)   bound")
        for r in results:
            ratio = f"{r['ratio']['median']:.2f} ({r['ratio']['lowest']:.2f}-{r['ratio']['highest']:.2f})"
            left = f"{r['case']:16} {','.join(map(str, r['lengths'])):12}"
            times = f"{r['ours_seconds']['median']:9.4f} {r['reference_seconds']['median']:13.4f}"
            print(f"{left} {times}   {ratio:22} {r['bound'] or '':>7}")
    return int(any(r["bound"] and r["ratio"]["median"] < r["bound"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
