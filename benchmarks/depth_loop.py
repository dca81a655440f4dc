"""How much the active-rows loop saves: time of a training step with it over the time with the plain masked loop.

    python benchmarks/depth_loop.py [--json] [--threads 1] [--repeats 9]

One training step (forward, backward, Adam) of a 2/2/2 model of width 128 on 32 rows of 32 tokens, depths Poisson with mean
8. Both loops compute B e once. Each repeat draws its own depths and times both loops on them, one after the other; the
ratio is the median over repeats. Once with gradient through the last 4 steps, once through all. "Predicted" counts layer
passes of the same draws, a pass with gradient as three; "expected" does so for the mean over many draws. Exits with 1
where a ratio is above its bound. With one thread the clock is CPU time, which is wall time on an idle machine and is not
moved by other processes; with more threads it is wall time, and the machine should be idle.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from looprepro import randomness
from looprepro.config.cell import LoopedTransformer as ModelConfig
from looprepro.config.cell import Recurrence
from looprepro.models.depth_loop import split_depth
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.recurrence import depths

WIDTH, HEADS, LAYERS, ROWS, TIME, VOCABULARY, MEAN_DEPTH = 128, 4, 2, 32, 32, 61, 8.0
BOUNDS = {4: 0.85, None: 0.68}
"""Backpropagation depth (None: full) to the largest ratio that is good enough."""


@dataclass(frozen=True)
class Result:
    """One line of the table: seconds a step, and active over masked."""

    backprop_depth: int | None
    active_seconds: float
    masked_seconds: float
    ratio: float
    lowest: float
    highest: float
    predicted: float
    expected: float
    bound: float


def predicted_ratio(drawn: list[int], backprop_depth: int | None) -> float:
    """Layer passes of the active-rows loop over those of the masked loop."""
    without, with_gradient = zip(*(split_depth(depth, backprop_depth) for depth in drawn), strict=True)
    outside = 3 * 2 * LAYERS
    active = outside + LAYERS * (sum(without) + 3 * sum(with_gradient)) / len(drawn)
    return active / (outside + LAYERS * (max(without) + 3 * max(with_gradient)))


def expected_ratio(recurrence: Recurrence, draws: int = 2000) -> float:
    """:func:`predicted_ratio`, mean over ``draws`` batches."""
    u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, 0, torch.arange(draws), ROWS)
    return statistics.fmean(predicted_ratio(drawn, recurrence.backprop_depth) for drawn in depths(recurrence, u).tolist())


def measure(backprop_depth: int | None, repeats: int, clock: Callable[[], float]) -> Result:
    """Time both loops on ``repeats`` draws of depths."""
    recurrence = Recurrence(scheme="poisson-full", mean=MEAN_DEPTH, maximum=None, backprop_depth=backprop_depth)
    config = ModelConfig(width=WIDTH, heads=HEADS, recurrence=recurrence)
    model = LoopedTransformer(config, VOCABULARY, TIME)
    model.initialise(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    rows = torch.arange(ROWS)
    tokens = randomness.integers(0, randomness.WORDS, 0, rows, TIME, VOCABULARY)
    noise = randomness.truncated_normal(0, randomness.STATE, 0, rows, TIME * WIDTH)
    state = noise.view(ROWS, TIME, WIDTH) * model.state_std()

    def step(drawn: torch.Tensor, masked: bool) -> float:
        model.masked_loop = masked
        start = clock()
        logits = model(tokens, drawn, state)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return clock() - start

    active, plain, predicted = [], [], []
    for repeat in range(repeats + 1):
        u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, repeat, rows, 1)
        drawn = depths(recurrence, u[:, 0])
        seconds = step(drawn, masked=False), step(drawn, masked=True)
        if repeat == 0:  # warm-up: allocator, optimiser state
            continue
        active.append(seconds[0])
        plain.append(seconds[1])
        predicted.append(predicted_ratio(drawn.tolist(), backprop_depth))
    ratios = [a / p for a, p in zip(active, plain, strict=True)]
    return Result(
        backprop_depth,
        statistics.median(active),
        statistics.median(plain),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(predicted),
        expected_ratio(recurrence),
        BOUNDS[backprop_depth],
    )


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (a cell trains with 1)")
    parser.add_argument("--repeats", type=int, default=9, help="draws of depths; the ratio is their median")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    results = [measure(backprop_depth, arguments.repeats, clock) for backprop_depth in BOUNDS]
    machine = {"torch": torch.__version__, "machine": platform.processor() or platform.machine(), "threads": arguments.threads}
    if arguments.json:
        print(json.dumps({"benchmark": "depth_loop", **machine, "results": [asdict(result) for result in results]}))
    else:
        print("gradient through   active s   masked s   ratio (lowest-highest)   predicted   expected   bound")
        for r in results:
            through = "all steps" if r.backprop_depth is None else f"last {r.backprop_depth}"
            ratio = f"{r.ratio:.3f} ({r.lowest:.3f}-{r.highest:.3f})"
            seconds = f"{through:16} {r.active_seconds:10.3f} {r.masked_seconds:10.3f}"
            print(f"{seconds}   {ratio:22} {r.predicted:11.3f} {r.expected:10.3f} {r.bound:7.2f}")
    return 0 if all(result.ratio <= result.bound for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
