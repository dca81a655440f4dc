"""Useful matrix arithmetic of a training step as a fraction of what this machine's matrix products reach.

    python benchmarks/matmul_fraction.py [--cases mini mini-curriculum width-128 width-512] [--repeats 5] [--threads 1]
                                         [--kernels fused] [--json]

Useful: the products, attention's causal half and the operator on rows still active, by config/formulas.py for the depths that
were drawn, backward twice forward; norms, softmax, activations and Adam count nothing. The peak is the speed of square float32
products at precision "highest", measured before and after the steps; the larger of the two is the denominator. A step is the
trainer's whole step. Exits 1 where a median fraction is below its bound. Results: benchmarks/results/matmul_fraction.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from cases import CASES, Case, first_step, trainer, useful_flops
from machine import description, gemm_peak, spread, write

from looprepro.config.cell import Execution
from looprepro.training.run import prepare

BOUNDS = {"mini": 0.35, "mini-curriculum": 0.35, "width-128": 0.50, "width-512": 0.75}
"""Case to the smallest fraction that is good enough."""


def measure(case: Case, repeats: int, execution: Execution) -> dict[str, Any]:
    """The median step; of several lengths, all useful operations over all seconds (equal slices of the curriculum)."""
    before = gemm_peak()
    cell = case.cell()
    mine = trainer(cell, execution)
    seconds, flops = [0.0] * repeats, [0.0] * repeats
    for length in case.lengths:
        mine.step = first_step(cell, length)
        mine.train_step()
        for repeat in range(repeats):
            drawn = mine.sample_depths(mine.step).tolist()
            start = time.perf_counter()
            mine.train_step()
            seconds[repeat] += time.perf_counter() - start
            flops[repeat] += useful_flops(cell, length, drawn)
    after = gemm_peak()
    peak = max(before, after)
    return {
        "case": case.name,
        "lengths": case.lengths,
        "kernels": mine.kernels,
        "step_seconds": spread(seconds),
        "useful_gflops_per_second": spread([f / s / 1e9 for f, s in zip(flops, seconds, strict=True)]),
        "peak_gflops_per_second": {"before": before / 1e9, "after": after / 1e9},
        "fraction": spread([f / s / peak for f, s in zip(flops, seconds, strict=True)]),
        "bound": BOUNDS.get(case.name),
        "repeats": repeats,
    }


def main() -> int:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(BOUNDS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (a cell trains with 1)")
    parser.add_argument("--kernels", choices=["fused", "plain"], default="fused")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-file", action="store_true", help="leave benchmarks/results alone")
    given = parser.parse_args()
    execution = Execution(threads=given.threads, device="cpu", kernels=given.kernels)
    prepare(execution)
    results = [measure(CASES[name], given.repeats, execution) for name in given.cases]
    document = {"benchmark": "matmul_fraction", "machine": description(given.threads, "float32"), "results": results}
    if not given.no_file:
        write("matmul_fraction", document)
    if given.json:
        print(json.dumps(document))
    else:
        print("case             kernels    step s   useful GF/s   peak GF/s before, after   fraction (lowest-highest)   bound")
        for r in results:
            peaks = "{before:.1f}, {after:.1f}".format(**r["peak_gflops_per_second"])
            fraction = "{median:.3f} ({lowest:.3f}-{highest:.3f})".format(**r["fraction"])
            useful = r["useful_gflops_per_second"]["median"]
            left = f"{r['case']:16} {r['kernels']:7} {r['step_seconds']['median']:9.4f} {useful:13.1f}"
            print(f"{left}   {peaks:23}   {fraction:25} {r['bound'] or '':>7}")
    return int(any(r["bound"] and r["fraction"]["median"] < r["bound"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
