"""Time of the Toeplitz defect over width d and budget T, and how it grows with both.

    python benchmarks/geometry.py [--json] [--repeats 3]

One thread, float64, 256 probes on the sphere, a dense A = cQ; the median of the repeats. Arithmetic: 2 d^2 per probe and
step for the powers and 2 d T^2 per probe for the Gram matrices, so the exponent in d tends to 2 and the one in T to 1.
Exits 1 where d = 1024, T = 48 takes 3 seconds or more.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time

import torch

from looprepro.geometry.probes import COUNT
from looprepro.geometry.toeplitz import sphere_defects

WIDTHS = (256, 512, 1024)
BUDGETS = (12, 24, 48)
LIMIT_SECONDS = 3.0


def seconds(matrix: torch.Tensor, budget: int, repeats: int) -> float:
    """Median time of one defect."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        sphere_defects(matrix, [budget])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[int, dict[int, float]] = {}
    for width in WIDTHS:
        entries = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        matrix = 0.4472135954999579 * torch.linalg.qr(entries)[0]
        sphere_defects(matrix, [2])  # first calls load kernels
        measured[width] = {budget: seconds(matrix, budget, arguments.repeats) for budget in BUDGETS}
    largest = measured[WIDTHS[-1]][BUDGETS[-1]]
    in_width = math.log2(largest / measured[WIDTHS[-2]][BUDGETS[-1]])
    in_budget = math.log2(largest / measured[WIDTHS[-1]][BUDGETS[-2]])
    if arguments.json:
        print(
            json.dumps(
                {
                    "probes": COUNT,
                    "seconds": {str(width): {str(t): value for t, value in row.items()} for width, row in measured.items()},
                    "exponent_in_width": in_width,
                    "exponent_in_budget": in_budget,
                    "limit_seconds": LIMIT_SECONDS,
                    "within_limit": largest < LIMIT_SECONDS,
                }
            )
        )
    else:
        print(f"Toeplitz defect, {COUNT} probes, one thread, seconds (median of {arguments.repeats})")
        print("     d" + "".join(f"{f'T = {budget}':>10}" for budget in BUDGETS))
        for width, row in measured.items():
            print(f"{width:>6}" + "".join(f"{row[budget]:>10.3f}" for budget in BUDGETS))
        print(f"growth at the largest: d^{in_width:.2f}, T^{in_budget:.2f}")
        print(f"d = {WIDTHS[-1]}, T = {BUDGETS[-1]}: {largest:.2f} s, limit {LIMIT_SECONDS:.0f} s")
    return 0 if largest < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
