"""Cells of one sweep that saw different text under one name are named, and the collection is not complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from looprepro.analysis.collect import collect_scale


def with_text(source: Any, cell: str, content: str, name: str = "offline-mini") -> None:
    record = source.cells[cell]
    record.config["task"] = {"kind": "language", "data": name, "vocabulary": 64, "sequence": 8}
    for document in record.evaluations.values():
        document["data"] = content


def test_different_text_under_one_name_is_a_problem(two_cells: Any, tmp_path: Path) -> None:
    with_text(two_cells, "a", "1" * 64)
    with_text(two_cells, "b", "2" * 64)
    collected = collect_scale(two_cells, tmp_path, "smoke")
    (line,) = collected.problems
    assert line == (
        "table1: cells were measured on different text called offline-mini: " + "1" * 12 + " (a), " + "2" * 12 + " (b)"
    )
    assert not collected.complete


def test_equal_text_and_text_of_other_names_are_none(two_cells: Any, tmp_path: Path) -> None:
    with_text(two_cells, "a", "1" * 64)
    with_text(two_cells, "b", "1" * 64)
    assert collect_scale(two_cells, tmp_path, "smoke").problems == ()
    with_text(two_cells, "b", "2" * 64, "fineweb-edu")
    assert collect_scale(two_cells, tmp_path, "smoke").complete
