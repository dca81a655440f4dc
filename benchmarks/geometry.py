"""Time of the Toeplitz defect over width d and budget T, how it grows with both, and CPU time of the whole command.

    python benchmarks/geometry.py [--json] [--repeats 3]

One thread, float64, 256 probes on the sphere, a dense A = cQ; the median of the repeats. Arithmetic: 2 d^2 per probe and
step for the powers and 2 d T^2 per probe for the Gram matrices, so the exponent in d tends to 2 and the one in T to 1.
Then ``looprepro geometry`` itself as its own process, on fresh conformal operators of width 1024 with G = 2 and G = d/2:
CPU seconds with everything (imports, both defects, turning, norms, eigenvalues). Exits 1 where the defect at d = 1024,
T = 48 takes 3 seconds or more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
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


def command_seconds(groups: int) -> float:
    """CPU seconds of the whole command, in its own process with one thread."""
    command = [
        "geometry",
        "--method",
        "conformal",
        "--groups",
        str(groups),
        "--width",
        str(WIDTHS[-1]),
        "--budgets",
        "8,16,32,48",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "looprepro.cli.main", *command],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    whole = {
        groups: statistics.median(command_seconds(groups) for _ in range(arguments.repeats)) for groups in (2, WIDTHS[-1] // 2)
    }
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
                    "command_cpu_seconds": {f"G={groups}": value for groups, value in whole.items()},
                    "machine": platform.processor() or platform.machine(),
                    "torch": torch.__version__,
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
        for groups, value in whole.items():
            print(f"looprepro geometry, d = {WIDTHS[-1]}, T = {BUDGETS[-1]}, G = {groups}: {value:.2f} s of CPU, all included")
    return 0 if largest < LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
