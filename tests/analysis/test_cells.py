"""cells.jsonl: what stays of a cell's folder for a reader who has results/ alone."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.cells import CELLS, read_cells
from looprepro.analysis.collect import collect_scale
from looprepro.analysis.placements import request_document
from looprepro.config.cell import Cell
from looprepro.config.identity import cell_id
from looprepro.files.errors import StoreError
from looprepro.planning import PlannedCell, expand, load_sweep
from looprepro.store import Store

LOG = b"cell x, attempt 2, 2026-11-30\n" + 500 * b"." + b"\nthe end\n"
METRICS = b'{"step": 60, "loss": 1.5}\n'


def attempt(store: Store, planned: PlannedCell, commit: str, status: Any, log: bytes) -> None:
    """One attempt from its start to its end; with status done it publishes numbers."""
    store.register(planned.id, planned.cell.model_dump(mode="json"))
    provenance = {"schema": 1, "seed": planned.cell.seed, "commit": commit, "cpu": "A Processor", "versions": {"torch": "2"}}
    contents = {"provenance.json": json.dumps(provenance).encode(), "log.txt": log}
    held = store.claim(planned.id, contents=contents)
    assert held is not None
    if status == "done":
        (held.path / "metrics.jsonl").write_bytes(METRICS)
        held.publish_result({"status": "done", "step": 60, "reason": "", "resumed": 1})
        for wanted in planned.evaluations:
            document = {"evaluation": wanted.evaluation.model_dump(mode="json"), "data": "text", "series": {}}
            held.write_evaluation(wanted.id, document | {"metrics": {"last_token_accuracy": {"value": 0.5, "items": 8}}})
    held.end(status, "" if status == "done" else "node lost", 60)


@pytest.fixture
def planned() -> tuple[PlannedCell, ...]:
    return expand(load_sweep("table1"), "smoke", only=["group=A5", "method=diagonal"]).cells


@pytest.fixture
def store(planned: tuple[PlannedCell, ...], tmp_path: Path) -> Store:
    made = Store(tmp_path / "runs")
    made.record_request(request_document(expand(load_sweep("table1"), "smoke", only=["group=A5", "method=diagonal"])))
    attempt(made, planned[0], "aaa", "interrupted", b"")
    for cell in planned:
        attempt(made, cell, "bbb", "done", LOG)
    return made


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (results / "smoke" / CELLS).read_text(encoding="utf-8").splitlines()]


def test_a_line_names_the_configuration_the_attempts_and_where_they_ran(
    store: Store, planned: tuple[PlannedCell, ...], tmp_path: Path
) -> None:
    collect_scale(store, tmp_path, "smoke")
    found = lines(tmp_path)
    environments = {line["environment"]: line["provenance"] for line in found if "environment" in line}
    evaluations = {line["evaluation"]: line["settings"] for line in found if "evaluation" in line}
    cells = {line["cell"]: line for line in found if "cell" in line}
    assert sorted(one["commit"] for one in environments.values()) == ["aaa", "bbb"]
    assert all(one["cpu"] == "A Processor" and "seed" not in one for one in environments.values())
    assert {id: settings["T"] for id, settings in evaluations.items()} == {e.id: e.evaluation.T for e in planned[0].evaluations}
    assert set(cells) == {cell.id for cell in planned}
    for id, line in cells.items():
        assert cell_id(Cell.model_validate(line["config"])) == id
        assert line["data"] == ["text"]
    first = cells[planned[0].id]["attempts"]
    assert [(one["attempt"], one["status"], one["cause"]) for one in first] == [
        (1, "interrupted", "node lost"),
        (2, "done", ""),
    ]
    assert [environments[one["environment"]]["commit"] for one in first] == ["aaa", "bbb"]
    assert first[1]["log"] == {
        "bytes": len(LOG),
        "sha256": hashlib.sha256(LOG).hexdigest(),
        "end": LOG[-400:].decode(),
    }
    assert first[1]["metrics"] == {"bytes": len(METRICS), "sha256": hashlib.sha256(METRICS).hexdigest()}
    assert "metrics" not in first[0]
    assert "changes" not in first[1]


def test_a_line_stays_while_its_rows_do(store: Store, planned: tuple[PlannedCell, ...], tmp_path: Path) -> None:
    collect_scale(store, tmp_path, "smoke")
    before = lines(tmp_path)
    shutil.rmtree(store.root / "cells" / planned[0].id)
    collect_scale(store, tmp_path, "smoke")
    assert lines(tmp_path) == before
    attempt(store, planned[0], "ccc", "failed", b"anew")
    collect_scale(store, tmp_path, "smoke")
    assert lines(tmp_path) == before, "the numbers are still those of the earlier folder"
    shutil.rmtree(store.root / "cells" / planned[0].id)
    collect_scale(store, tmp_path, "smoke", prune=True)
    assert [line["cell"] for line in lines(tmp_path) if "cell" in line] == [planned[1].id]
    assert [line["provenance"]["commit"] for line in lines(tmp_path) if "environment" in line] == ["bbb"]


def test_cells_of_which_nothing_but_rows_is_known_are_counted(
    store: Store, planned: tuple[PlannedCell, ...], tmp_path: Path
) -> None:
    """Collected by a version that kept no lines, then runs/ was deleted."""
    assert collect_scale(store, tmp_path, "smoke").warnings == ()
    (tmp_path / "smoke" / CELLS).unlink()
    shutil.rmtree(store.root / "cells" / planned[0].id)
    (warning,) = collect_scale(store, tmp_path, "smoke").warnings
    assert warning.startswith("1 cells have rows and no line in cells.jsonl")


def test_a_damaged_file_is_named_and_not_overwritten(store: Store, tmp_path: Path) -> None:
    collect_scale(store, tmp_path, "smoke")
    path = tmp_path / "smoke" / CELLS
    for damaged in ('{"cell": "x"', '{"what": 1}\n', "[1]\n"):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(StoreError, match=r"cells\.jsonl cannot be read"):
            collect_scale(store, tmp_path, "smoke")
        assert path.read_text(encoding="utf-8") == damaged


def test_reading_where_nothing_was_collected_finds_nothing(tmp_path: Path) -> None:
    assert read_cells(tmp_path).text() == ""
