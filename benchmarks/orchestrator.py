"""Time of plan, status and collect over the number of cells, and how it grows.

    python benchmarks/orchestrator.py [--json] [--cells 10000] [--repeats 3]

Fills a runs folder with half and all of the cells (Table 1 at scale smoke, many seeds, three budgets each), finished
through the store's own attempts without training, then measures: expand and plan; presence of every cell (what ``status``
reads); collect into parquet. The median of the repeats. Exits 1 where status or plan of all cells takes 2 s or more, or
collect 10 s or more. The folder is temporary; 10,000 cells take about 100,000 small files.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from looprepro.analysis.collect import collect_scale
from looprepro.analysis.placements import request_document
from looprepro.planning import Expansion, expand, load_sweep, plan
from looprepro.store import Store

LIMITS = {"plan": 2.0, "status": 2.0, "collect": 10.0}
"""Seconds for all cells."""
POINTS = 10
"""Cells of Table 1 at scale smoke per seed."""


def fill(store: Store, expansion: Expansion) -> None:
    """Every cell finished, as the worker leaves it, with made-up numbers."""
    provenance = {"schema": 1, "commit": "0" * 40, "dirty": False, "versions": {"torch": "2"}, "device": "CPU", "host": "here"}
    contents = {"provenance.json": json.dumps(provenance).encode()}
    store.record_request(request_document(expansion))
    for planned in expansion.cells:
        store.register(planned.id, planned.cell.model_dump(mode="json"))
        attempt = store.claim(planned.id, contents=contents)
        assert attempt is not None, "the folder is ours alone"
        lines = "".join(json.dumps({"step": step, "loss": planned.cell.seed + 1 / step}) + "\n" for step in (10, 20, 30))
        (attempt.path / "metrics.jsonl").write_text(lines)
        attempt.publish_result(
            {"status": "done", "step": 60, "reason": "", "resumed": 0, "wall_seconds": 1.0, "device_seconds": 1.0}
        )
        for wanted in planned.evaluations:
            metrics = {"last_token_accuracy": {"value": 0.5, "items": wanted.evaluation.items}}
            document = {"evaluation": wanted.evaluation.model_dump(mode="json"), "metrics": metrics, "series": {}}
            attempt.write_evaluation(wanted.id, document)
        attempt.end("done")


def median(action: Callable[[], Any], repeats: int) -> float:
    """Seconds of ``action``, the median of ``repeats``."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(cells: int, repeats: int, folder: Path) -> dict[str, float]:
    """Seconds of each command over ``cells`` cells."""
    sweep, seeds = load_sweep("table1"), f"0-{cells // POINTS - 1}"
    expansion = expand(sweep, "smoke", seeds=seeds)
    store, ids = Store(folder / "runs"), [planned.id for planned in expansion.cells]
    fsync, os.fsync = os.fsync, lambda _: None  # filling is not what is measured
    try:
        fill(store, expansion)
    finally:
        os.fsync = fsync
    known = store.presence(ids)
    assert all(presence.status == "done" for presence in known.values()), "every cell was finished"
    return {
        "plan": median(lambda: plan(expand(sweep, "smoke", seeds=seeds).cells, known), repeats),
        "status": median(lambda: store.presence(ids), repeats),
        "collect": median(lambda: collect_scale(store, folder / "results", "smoke"), repeats),
    }


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Time of plan, status and collect over the number of cells.")
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {}
    for cells in (given.cells // 2, given.cells):
        with tempfile.TemporaryDirectory() as folder:
            found[cells] = measure(cells, given.repeats, Path(folder))
    half, whole = found.values()
    growth = {name: whole[name] / half[name] for name in whole}
    if given.json:
        print(
            json.dumps({"seconds": {str(n): times for n, times in found.items()}, "growth": growth, "limits": LIMITS}, indent=2)
        )
    else:
        print(f"{'':10}" + "".join(f"{n:>10,} cells" for n in found) + "     growth      limit")
        for name, limit in LIMITS.items():
            print(f"{name:10}{half[name]:14.2f} s{whole[name]:14.2f} s{growth[name]:11.2f}{limit:9.0f} s")
    return int(any(whole[name] >= limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
