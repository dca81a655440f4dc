"""Cells of which only collected rows remain: they count as done, and cannot be evaluated anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from looprepro.analysis.results import folder_of, read_rows
from looprepro.config.presence import Presence


def archived_presence(results_dir: Path, scale: str, ids: Collection[str]) -> dict[str, Presence]:
    """Of the cells ``ids``, those that have rows: done with their evaluations, or diverged. Failed ones are not kept."""
    evaluations: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, tuple[str, str, int, float | None]] = {}
    for row in read_rows(folder_of(results_dir, scale)):
        cell = row["cell"]
        if cell in ids and row["status"] in ("done", "diverged"):
            seen[cell] = (row["status"], row.get("cause") or "", row.get("attempt") or 0, row.get("device_hours"))
            if row.get("value") is not None:
                evaluations[cell].add(row["evaluation"])
    return {
        cell: Presence(
            "done" if status == "done" else "diverged", cause, frozenset(evaluations[cell]), attempts, 0, hours, True
        )
        for cell, (status, cause, attempts, hours) in seen.items()
    }
