"""How often a 95% interval of paired differences misses their mean: Student's t, which claims use, and a percentile bootstrap.

    python benchmarks/interval_errors.py [--json]

Differences are normal with mean zero, of as many seeds as the scales have; every one of 10,000 studies is resampled 2,000
times. Fixed seed: two runs print the same.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from looprepro.analysis.evidence import paired

SEEDS = (3, 5, 6, 10)
STUDIES, RESAMPLES = 10_000, 2_000


def misses(n: int) -> dict[str, float]:
    """Shares of studies of ``n`` differences whose interval lies on one side of zero."""
    random = np.random.default_rng(n)
    differences = random.standard_normal((STUDIES, n))
    student = resampled = 0
    for study in differences:
        found = paired([dict(enumerate(study))], [1.0])
        assert found is not None
        low, high = found.interval
        student += not low <= 0.0 <= high
        means = study[random.integers(0, n, (RESAMPLES, n))].mean(axis=1)
        low, high = np.quantile(means, (0.025, 0.975))
        resampled += not low <= 0.0 <= high
    return {"student": student / STUDIES, "bootstrap": resampled / STUDIES}


def main() -> int:
    """The table, or with ``--json`` one document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {n: misses(n) for n in SEEDS}
    if given.json:
        print(json.dumps(found))
        return 0
    print("seeds  Student's t  percentile bootstrap")
    for n, shares in found.items():
        print(f"{n:5}  {shares['student']:11.1%}  {shares['bootstrap']:20.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
