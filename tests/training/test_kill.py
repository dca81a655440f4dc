"""SIGKILL at any moment costs time, never a number: what is collected in the end is what an undisturbed run gives."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from looprepro.analysis.collect import collect_scale
from looprepro.analysis.placements import request_document
from looprepro.files.json_files import write_json
from looprepro.launch.base import manifest_of, thread_environment, work_of
from looprepro.planning import expand, load_sweep
from looprepro.store import Store

SEED = 20
KILLS = 20
DIFFERS = {"attempt", "resumed", "wall_hours", "device_hours", "geometry_hours", "host", "commit", "dirty"}
"""Columns that may differ between two runs: how they went, and the working tree, which others may change meanwhile."""
MOMENTS = [
    ("checkpoint written, not renamed", 2),
    ("checkpoint renamed, older one not dropped", 3),
    ("older checkpoint half deleted", 1),
    ("series replaced, no result", 1),
    ("result not published", 1),
    ("result published, nothing evaluated", 1),
    ("one evaluation of two", 1),
    ("evaluated, end not written", 1),
]


class Workers:
    """Forked workers of one sweep, one at a time, that can be killed."""

    def __init__(self, folder: Path, sweep_text: str) -> None:
        sweep = folder / "tiny.yaml"
        sweep.write_text(sweep_text)
        self.folder = folder
        self.expansion = expand(load_sweep(sweep), "smoke")
        script = Path(__file__).with_name("forking_workers.py")
        environment = os.environ | thread_environment(1) | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def start(self, store: Store, moment: str | None = None, nth: int = 1) -> int:
        """The process id of a worker on everything that is missing: what the same command again would start."""
        work = work_of(self.expansion.cells)
        manifest = self.folder / "manifest.json"
        write_json(manifest, manifest_of(store, work, store.highest_attempts(item.id for item in work), wait=True))
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"manifest": str(manifest), "moment": moment, "nth": nth}) + "\n")
        return int(self.answer()["pid"])

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        content: dict[str, Any] = json.loads(self._process.stdout.readline())
        return content

    def run(self, store: Store) -> None:
        """To completion."""
        self.start(store)
        assert self.answer() == {"code": 0}


@pytest.fixture
def workers(tmp_path: Path, tiny_sweep: Callable[..., str], request: pytest.FixtureRequest) -> Iterator[Workers]:
    steps, pack = request.param
    execution = f"log_every: 5, checkpoint_steps: 3, pack: {pack}"
    seeds = "0-2" if pack == "seeds" else "0-1"
    started = Workers(tmp_path, tiny_sweep(steps=steps, average_last=0.75, seeds=seeds, execution=execution))
    yield started
    started.close()


def collected(store: Store, results: Path, workers: Workers) -> tuple[list[dict[str, Any]], bytes]:
    """Rows without the columns that may differ, and the series."""
    store.record_request(request_document(workers.expansion))
    found = collect_scale(store, results, "smoke")
    assert found.complete, found
    assert not found.problems
    rows = parquet.read_table(found.folder / "results.parquet").to_pylist()
    assert {row["status"] for row in rows} == {"done"}
    kept = [{name: value for name, value in row.items() if name not in DIFFERS} for row in rows]
    series = parquet.read_table(found.folder / "series.parquet").to_pylist()
    return kept, json.dumps(series).encode()


def attempts(store: Store) -> int:
    """Attempts at all cells."""
    return len(list(store.root.glob("cells/*/attempts/[0-9]*")))


@pytest.mark.parametrize("workers", [(24, "none"), (24, "seeds")], indirect=True, ids=["alone", "packs"])
def test_killed_at_every_moment_between_two_renames(workers: Workers, tmp_path: Path) -> None:
    store = Store(tmp_path / "disturbed")
    for moment, nth in MOMENTS:
        pid = workers.start(store, moment, nth)
        assert workers.answer() == {"moment": moment}
        os.kill(pid, signal.SIGKILL)
        assert workers.answer() == {"code": -signal.SIGKILL}
    workers.run(store)
    undisturbed = Store(tmp_path / "undisturbed")
    workers.run(undisturbed)
    assert collected(store, tmp_path / "one", workers) == collected(undisturbed, tmp_path / "two", workers)


@pytest.mark.parametrize("workers", [(60, "none"), (60, "seeds")], indirect=True, ids=["alone", "packs"])
def test_killed_at_random_moments(workers: Workers, tmp_path: Path) -> None:
    moments = random.Random(SEED)
    waits = [round(moments.uniform(0.0, 0.4), 3) for _ in range(KILLS)]
    print(f"seed {SEED}: killed after {waits} s, every fifth from the start of the process, the others from its first claim")
    stores = [Store(tmp_path / "disturbed-0")]
    for number, wait in enumerate(waits):
        while True:
            before = attempts(stores[-1])
            pid = workers.start(stores[-1])
            until = time.monotonic() + 10
            while number % 5 and attempts(stores[-1]) == before and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(wait)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            code = workers.answer()["code"]
            if code == -signal.SIGKILL:
                break
            assert code == 0, f"{stores[-1].root} is not complete"
            stores.append(Store(tmp_path / f"disturbed-{len(stores)}"))  # a fast machine: nothing left to be killed here
    undisturbed = Store(tmp_path / "undisturbed")
    workers.run(undisturbed)
    expected = collected(undisturbed, tmp_path / "results", workers)
    resumed = 0
    for store in stores:
        workers.run(store)
        assert collected(store, tmp_path / f"results-{store.root.name}", workers) == expected, store.root
        resumed += sum(record.result["resumed"] for record in store.records(store.ids()) if record.result)
    print(f"{len(stores)} runs, resumed {resumed} times")
    assert resumed >= 5, "hardly any worker lived long enough to write a checkpoint"
