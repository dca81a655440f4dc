"""collect on a real runs folder: two sweeps asked for, cells finished through the store's own attempts, files damaged."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.collect import collect_scale
from looprepro.analysis.fill import build_table
from looprepro.analysis.placements import request_document
from looprepro.analysis.results import load_results
from looprepro.analysis.table_plan import table_plan
from looprepro.planning import Expansion, PlannedCell, expand, load_sweep
from looprepro.report.tables import render
from looprepro.store import Attempt, Store


@pytest.fixture(scope="module")
def expansion() -> Expansion:
    return expand(load_sweep("table1"), "smoke", only=["group=A5", "method=diagonal,G=2,d/2"])


def start(store: Store, planned: PlannedCell) -> Attempt:
    store.register(planned.id, planned.cell.model_dump(mode="json"))
    provenance = {"schema": 1, "commit": "c0ffee", "dirty": False, "versions": {"torch": "2"}, "device": "CPU", "host": "here"}
    attempt = store.claim(planned.id, contents={"provenance.json": json.dumps(provenance).encode()})
    assert attempt is not None
    return attempt


def finish(store: Store, planned: PlannedCell) -> None:
    """Train nothing and publish an accuracy of 0.5 + T/100 + seed/10."""
    attempt = start(store, planned)
    lines = [{"step": step, "loss": 4 / step + planned.cell.seed, "grad_norm": 1.0} for step in (10, 60)]
    (attempt.path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": 70, "lo')
    (attempt.path / "series.json").write_text(json.dumps({"spectrum": {"x": [0.4], "y": [0.0]}}))
    result = {"status": "done", "step": 60, "reason": "", "resumed": 0, "wall_seconds": 36.0, "device_seconds": 36.0}
    assert attempt.publish_result(result)
    for wanted in planned.evaluations:
        value = 0.5 + wanted.evaluation.T / 100 + planned.cell.seed / 10
        document = {
            "evaluation": wanted.evaluation.model_dump(mode="json"),
            "metrics": {"last_token_accuracy": {"value": value, "items": wanted.evaluation.items}},
            "series": {f"position_accuracy@T={wanted.evaluation.T}": {"x": [1.0], "y": [value]}},
        }
        assert attempt.write_evaluation(wanted.id, document)
    attempt.end("done")


@pytest.fixture
def store(expansion: Expansion, tmp_path: Path) -> Store:
    made = Store(tmp_path / "runs")
    made.record_request(request_document(expansion))
    for planned in expansion.cells:
        finish(made, planned)
    return made


def test_a_finished_sweep_becomes_its_table(store: Store, expansion: Expansion, tmp_path: Path) -> None:
    collected = collect_scale(store, tmp_path / "results", "smoke")
    assert (collected.rows, collected.statuses, collected.complete) == (18, {"done": 6}, True)
    results = load_results(tmp_path / "results", "smoke")
    table = build_table(table_plan(expansion), results.rows)
    assert table.complete
    # seeds 0 and 1 at T = 4: 0.54 and 0.64
    assert table.entries[0][1].mean == pytest.approx(0.59)
    assert table.entries[0][1].se == pytest.approx(0.05)
    assert "0.590 ± 0.050" in render(table, "md")
    row = next(row for row in results.rows if row["axis_method"] == "d/2")
    assert row["label_method"] == "conformal, G = 8"
    assert (row["groups"], row["width"], row["commit"], row["device"], row["host"]) == (8, 16, "c0ffee", "CPU", "here")
    series = results.series_of(expansion.cells[0].id)
    assert list(series) == ["grad_norm", "loss", *(f"position_accuracy@T={T}" for T in (2, 4, 6)), "spectrum"]
    assert series["loss"] == results.series("loss")[expansion.cells[0].id] == ([10.0, 60.0], [0.4, 4 / 60])


def test_collecting_twice_gives_equal_bytes(store: Store, tmp_path: Path) -> None:
    files = []
    for _ in range(2):
        folder = collect_scale(store, tmp_path / "results", "smoke").folder
        files.append([path.read_bytes() for path in sorted(folder.glob("*.parquet"))])
    assert files[0] == files[1]


def test_runs_may_go_and_the_table_stays(store: Store, expansion: Expansion, tmp_path: Path) -> None:
    collect_scale(store, tmp_path / "results", "smoke")
    before = build_table(table_plan(expansion), load_results(tmp_path / "results", "smoke").rows)
    shutil.rmtree(tmp_path / "runs" / "cells" / expansion.cells[0].id)
    collect_scale(store, tmp_path / "results", "smoke")
    rows = load_results(tmp_path / "results", "smoke").rows
    assert {row["cell"] for row in rows if row["archived"]} == {expansion.cells[0].id}
    assert build_table(table_plan(expansion), rows) == before


@pytest.mark.parametrize("asked", [False, True], ids=["a fresh clone", "a fresh clone in which the sweep was asked for"])
def test_without_any_cell_in_runs_nothing_collected_is_touched(
    store: Store, expansion: Expansion, tmp_path: Path, asked: bool
) -> None:
    collect_scale(store, tmp_path / "results", "smoke")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "results" / "smoke").iterdir()}
    assert {path.name for path in before} == {"results.parquet", "series.parquet", "cells.jsonl"}
    shutil.rmtree(tmp_path / "runs")
    clone = Store(tmp_path / "runs")
    if asked:
        clone.record_request(request_document(expansion))
    collected = collect_scale(clone, tmp_path / "results", "smoke")
    assert (collected.complete, collected.statuses) == (True, {"archived": 6} if asked else {})
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "results" / "smoke").iterdir()} == before


@pytest.mark.parametrize(
    "content", [b"", b'{"schema": 1, "nonce"', b'{"schema": 1, "nonce": "x", "attempt": 1, "metrics": {}}']
)
def test_a_damaged_evaluation_is_named_with_its_path_and_counted_missing(
    store: Store, expansion: Expansion, tmp_path: Path, content: bytes
) -> None:
    collect_scale(store, tmp_path / "results", "smoke")
    planned = expansion.cells[0]
    path = tmp_path / "runs" / "cells" / planned.id / "evaluations" / f"{planned.evaluations[1].id}.json"
    path.write_bytes(content)
    collected = collect_scale(store, tmp_path / "results", "smoke")
    assert collected.missing == (f"{planned.id}/{planned.evaluations[1].id}",)
    assert len(collected.problems) == 1
    assert str(path) in collected.problems[0]
    entry = build_table(table_plan(expansion), load_results(tmp_path / "results", "smoke").rows).entries[0][1]
    assert (entry.n, entry.missing) == (1, 1)


def test_failed_and_running_cells_are_told_apart(expansion: Expansion, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    store.record_request(request_document(expansion))
    failing, running = expansion.cells[:2]
    start(store, failing).end("failed", "out of memory at step 3")
    (start(store, running).path / "metrics.jsonl").write_text('{"step": 1, "loss": 4.0}\n')
    collected = collect_scale(store, tmp_path / "results", "smoke")
    assert collected.statuses == {"failed": 1, "planned": 4, "running": 1}
    rows = load_results(tmp_path / "results", "smoke").rows
    assert {(row["cell"], row["status"], row["cause"]) for row in rows} == {(failing.id, "failed", "out of memory at step 3")}
    entry = build_table(table_plan(expansion), rows).entries[0][0]
    assert (entry.n, entry.failed, entry.missing) == (0, 1, 1)
    assert load_results(tmp_path / "results", "smoke").series("loss") == {}, "half a curve would have no row to belong to"


def test_a_diverged_cell_shows_in_the_table(store: Store, expansion: Expansion, tmp_path: Path) -> None:
    planned = expansion.cells[0]
    shutil.rmtree(tmp_path / "runs" / "cells" / planned.id)
    attempt = start(store, planned)
    attempt.publish_result({"status": "diverged", "step": 7, "reason": "loss is nan", "resumed": 0})
    attempt.end("diverged")
    collect_scale(store, tmp_path / "results", "smoke")
    table = build_table(table_plan(expansion), load_results(tmp_path / "results", "smoke").rows)
    assert "n=1/2, 1 diverged" in render(table, "md")


@pytest.mark.slow
def test_ten_thousand_cells_on_disk_collect_in_under_ten_seconds(tmp_path: Path) -> None:
    sweep = load_sweep("table1")
    expansion = expand(sweep, "smoke", only=["method=diagonal,G=1,G=2,G=4,d/2"], seeds="0-999")
    store = Store(tmp_path / "runs")
    store.record_request(request_document(expansion))
    for planned in expansion.cells:
        _write_finished(tmp_path / "runs" / "cells" / planned.id, planned)
    for _ in range(2):
        started = time.perf_counter()
        collected = collect_scale(store, tmp_path / "results", "smoke")
        assert time.perf_counter() - started < 10
        assert (collected.rows, collected.complete) == (30_000, True)


def _write_finished(folder: Path, planned: PlannedCell) -> None:
    """The files of a finished cell, without the syncs that make the store's own writing slow."""
    attempt = folder / "attempts" / "0001"
    attempt.mkdir(parents=True)
    (folder / "evaluations").mkdir()
    signed: dict[str, Any] = {"schema": 1, "nonce": "n", "attempt": 1}
    owner = {"nonce": "n", "host": "h", "boot": "b", "namespace": "", "pid": 1, "process_start": "1"}
    documents = {
        folder / "cell.json": {"schema": 1, "config": planned.cell.model_dump(mode="json")},
        attempt / "owner.json": {"schema": 1, **owner},
        attempt / "provenance.json": {"schema": 1, "commit": "c", "versions": {"torch": "2"}},
        attempt / "end.json": {"schema": 1, "nonce": "n", "status": "done", "step": 60, "seconds": 1.0},
        folder / "result.json": {**signed, "status": "done", "step": 60, "wall_seconds": 1.0, "device_seconds": 1.0},
    }
    for wanted in planned.evaluations:
        metrics = {"last_token_accuracy": {"value": 0.5, "items": 256}}
        evaluation = wanted.evaluation.model_dump(mode="json")
        documents[folder / "evaluations" / f"{wanted.id}.json"] = {**signed, "evaluation": evaluation, "metrics": metrics}
    for path, document in documents.items():
        path.write_text(json.dumps(document))
    losses = (f'{{"step": {step}, "loss": {1 / step + planned.cell.seed}}}\n' for step in range(10, 70, 10))
    (attempt / "metrics.jsonl").write_text("".join(losses))
