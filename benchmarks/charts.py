"""What the dense charts add to a training step: Cayley and Householder against the pairwise chart.

    python benchmarks/charts.py [--json] [--repeats 5] [--record benchmarks/results/charts.json]

One training step (forward, backward, Adam) of a 2/2/2 model of width 512 on 64 words of 32 letters and the start token,
depths conditioned Poisson with mean 12, gradient through every step, one thread. Each repeat draws its own depths and times
all charts on them, one after the other; a number is the median over repeats. Any dense Q, however it is written, costs a
product of every active row with a d x d matrix per recurrent step, forward and twice backward. These products are timed by
themselves on the same draws, and so is making Q once with its gradient. Overhead = (step - pairwise step - products) /
pairwise step. Exits with 1 where it is 10% or more. The clock is CPU time, which other processes hardly move. ``--record``
also writes what ``--json`` prints to a file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from machine import description

from looprepro import randomness
from looprepro.config.cell import Injection, Recurrence
from looprepro.config.cell import LoopedTransformer as ModelConfig
from looprepro.files.atomic import write_text
from looprepro.models.charts import Cayley, Householder
from looprepro.models.injections import DenseConformal
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.recurrence import depths

WIDTH, HEADS, LAYERS, ROWS, TIME, VOCABULARY, MEAN_DEPTH, MAXIMUM = 512, 8, 2, 64, 33, 61, 12.0, 32
CHARTS = ("pairwise", "cayley", "householder")
LIMIT = 0.10
"""Largest overhead that is good enough."""


class Trained:
    """A model with one chart, and its optimiser."""

    def __init__(self, chart: str) -> None:
        injection = Injection.model_validate({"method": "conformal", "chart": chart, "groups": 1})
        recurrence = Recurrence(scheme="poisson-conditioned", mean=MEAN_DEPTH, maximum=MAXIMUM, backprop_depth=None)
        config = ModelConfig(
            width=WIDTH,
            heads=HEADS,
            prelude_layers=LAYERS,
            core_layers=LAYERS,
            coda_layers=LAYERS,
            injection=injection,
            recurrence=recurrence,
        )
        self.model = LoopedTransformer(config, VOCABULARY, TIME)
        self.model.initialise(0)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, foreach=True)

    def step(self, tokens: torch.Tensor, drawn: torch.Tensor, state: torch.Tensor) -> float:
        """CPU seconds of one training step."""
        start = time.process_time()
        logits = self.model(tokens, drawn, state)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - start

    def chart_seconds(self) -> float:
        """CPU seconds of Q and its gradient, as a step needs them once."""
        injection = self.model.injection
        assert isinstance(injection, DenseConformal)
        chart: Cayley | Householder = injection.chart
        weights = torch.ones(1, WIDTH, WIDTH)
        start = time.process_time()
        (chart() * weights).sum().backward()
        seconds = time.process_time() - start
        self.optimizer.zero_grad()
        return seconds


def product_seconds(drawn: torch.Tensor) -> float:
    """CPU seconds of the products h Q^T and of their gradients, with the numbers of active rows of one training step."""
    matrix = torch.full((WIDTH, WIDTH), 1.0 / WIDTH, requires_grad=True)
    states = torch.ones(ROWS, TIME, WIDTH, requires_grad=True)
    total = 0.0
    for t in range(int(drawn.max())):
        active = states[: int((drawn > t).sum())]
        gradient = torch.ones_like(active)
        start = time.process_time()
        torch.nn.functional.linear(active, matrix).backward(gradient)
        total += time.process_time() - start
    return total


def measure(repeats: int) -> dict[str, Any]:
    """Medians over ``repeats`` draws; steps before them warm up."""
    trained = {chart: Trained(chart) for chart in CHARTS}
    recurrence = trained["pairwise"].model.config.recurrence
    rows = torch.arange(ROWS)
    tokens = randomness.integers(0, randomness.WORDS, 0, rows, TIME, VOCABULARY)
    noise = randomness.truncated_normal(0, randomness.STATE, 0, rows, TIME * WIDTH)
    state = noise.view(ROWS, TIME, WIDTH) * trained["pairwise"].model.state_std()
    for chart, each in trained.items():  # optimiser states; and once the whole memory, without which the first step is slow
        each.step(tokens, torch.full((ROWS,), round(MEAN_DEPTH) if chart == CHARTS[0] else 1), state)
    steps: dict[str, list[float]] = {chart: [] for chart in CHARTS}
    charts: dict[str, list[float]] = {chart: [] for chart in CHARTS[1:]}
    products, means = [], []
    for repeat in range(repeats):
        u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, repeat, rows, 1)
        drawn = depths(recurrence, u[:, 0])
        means.append(float(drawn.double().mean()))
        for chart, each in trained.items():
            steps[chart].append(each.step(tokens, drawn, state))
        for chart, seconds in charts.items():
            seconds.append(trained[chart].chart_seconds())
        products.append(product_seconds(drawn))
    plain = statistics.median(steps["pairwise"])
    found = {
        chart: {
            "step_seconds": statistics.median(steps[chart]),
            "ratio_to_pairwise": statistics.median(a / b for a, b in zip(steps[chart], steps["pairwise"], strict=True)),
        }
        for chart in CHARTS
    }
    for chart in CHARTS[1:]:
        added = ((a - b - dense) / b for a, b, dense in zip(steps[chart], steps["pairwise"], products, strict=True))
        found[chart] |= {"chart_seconds": statistics.median(charts[chart]), "overhead": statistics.median(added)}
    return {
        "charts": found,
        "product_seconds": statistics.median(products),
        "product_share_of_pairwise": statistics.median(products) / plain,
        "mean_depth": statistics.fmean(means),
        "repeats": repeats,
    }


def main() -> int:
    """Measure, print, record, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--repeats", type=int, default=5, help="draws of depths; a number is the median over them")
    parser.add_argument("--record", type=Path, default=None, help="also write the JSON object to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    setting = {"width": WIDTH, "layers": [LAYERS] * 3, "rows": ROWS, "time": TIME, "limit": LIMIT}
    found = {"benchmark": "charts", "machine": description(1, "float32"), "setting": setting, **measure(arguments.repeats)}
    text = json.dumps(found, indent=2)
    if arguments.record is not None:
        arguments.record.parent.mkdir(parents=True, exist_ok=True)
        write_text(arguments.record, text + "\n")
    if arguments.json:
        print(text)
    else:
        words = f"width {WIDTH}, {ROWS} words, mean depth {found['mean_depth']:.1f}"
        print(f"{words}, one thread, CPU seconds, medians of {arguments.repeats}")
        print("chart         step s   ratio   Q once s   overhead besides the products")
        for chart, row in found["charts"].items():
            line = f"{chart:12} {row['step_seconds']:7.2f} {row['ratio_to_pairwise']:7.3f}"
            print(line + (f" {row['chart_seconds']:10.3f} {row['overhead']:10.1%}" if "overhead" in row else ""))
        dense = f"{found['product_seconds']:.2f} s, {found['product_share_of_pairwise']:.1%} of the pairwise step"
        print(f"dense products h Q^T of all recurrent steps, with their gradients: {dense}; limit of the overhead {LIMIT:.0%}")
    return 0 if all(found["charts"][chart]["overhead"] < LIMIT for chart in CHARTS[1:]) else 1


if __name__ == "__main__":
    sys.exit(main())
