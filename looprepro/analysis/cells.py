"""results/<scale>/cells.jsonl: what each collected cell was and how it ran, for a reader who has no runs/.

One JSON document a line, sorted, each kind in its place:

    {"environment": <hash>, "provenance": {commit, versions, processor, Python, platform, threads, ...}}
    {"evaluation": <id>, "settings": {...}}
    {"cell": <id>, "config": the whole configuration that the id is a hash of, "attempts": [{"attempt", "status", "cause",
     "step", "device_seconds", "environment": <hash>, "log": {"bytes", "sha256", "end"}, "metrics" and "changes" likewise}],
     "evaluations": [<id>], "data": [hash of the text it was measured on]}

What metrics.jsonl says (losses and so on) is in series.parquet. Lines are merged as rows are: that of a cell whose
folder is gone stays for as long as its rows do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from looprepro.files.atomic import write_text
from looprepro.files.errors import StoreError
from looprepro.files.json_files import canonical_json
from looprepro.store import CellRecord

CELLS = "cells.jsonl"
Line = dict[str, Any]
_NOT_SHARED = ("schema", "seed")
"""What a provenance says that is no environment."""


@dataclass(slots=True)
class Cells:
    """The three kinds of lines, by their key."""

    environment: dict[str, Line] = field(default_factory=dict)
    evaluation: dict[str, Line] = field(default_factory=dict)
    cell: dict[str, Line] = field(default_factory=dict)

    def add(self, record: CellRecord) -> None:
        """Replace what is said of one cell."""
        attempts = []
        for account in record.attempts:
            shared = {name: value for name, value in account["provenance"].items() if name not in _NOT_SHARED}
            known = hashlib.sha256(canonical_json(shared).encode()).hexdigest()[:12]
            self.environment[known] = {"environment": known, "provenance": shared}
            attempts.append({name: value for name, value in account.items() if name != "provenance"} | {"environment": known})
        for id, document in record.evaluations.items():
            self.evaluation[id] = {"evaluation": id, "settings": document.get("evaluation")}
        line: Line = {"cell": record.id, "config": record.config, "attempts": attempts}
        before = self.cell.get(record.id, {}).get("evaluations", ())  # rows outlive a lost file, and so must this
        line["evaluations"] = sorted({*record.evaluations, *before})
        if texts := {str(document["data"]) for document in record.evaluations.values() if document.get("data")}:
            line["data"] = sorted(texts)
        self.cell[record.id] = line

    def forget(self, evaluations: Collection[tuple[str, str]]) -> None:
        """Take single evaluations of single cells, pairs of both, out of the cells' lines."""
        for cell, evaluation in evaluations:
            if cell in self.cell:
                kept = [id for id in self.cell[cell]["evaluations"] if id != evaluation]
                self.cell[cell] = self.cell[cell] | {"evaluations": kept}

    def keep(self, ids: Collection[str]) -> int:
        """Drop the cells that are not among ``ids``, and what no cell refers to any more; how many of ``ids`` have no line."""
        self.cell = {id: line for id, line in self.cell.items() if id in ids}
        environments = {attempt["environment"] for line in self.cell.values() for attempt in line["attempts"]}
        evaluations = {id for line in self.cell.values() for id in line["evaluations"]}
        self.environment = {known: line for known, line in self.environment.items() if known in environments}
        self.evaluation = {id: line for id, line in self.evaluation.items() if id in evaluations}
        return len(set(ids) - set(self.cell))

    def text(self) -> str:
        """The file's content."""
        kinds: Iterable[Mapping[str, Line]] = (self.environment, self.evaluation, self.cell)
        return "".join(f"{canonical_json(lines[key])}\n" for lines in kinds for key in sorted(lines))


def read_cells(folder: Path) -> Cells:
    """What cells.jsonl holds; nothing where it does not exist. :class:`StoreError` where it is damaged."""
    path = folder / CELLS
    found = Cells()
    if not path.exists():
        return found
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            (kind,) = {"environment", "evaluation", "cell"} & set(line)
            getattr(found, kind)[line[kind]] = line
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}",
            "Restore it (git checkout, if it was committed), or move it away and run looprepro collect",
        ) from error
    return found


def write_cells(folder: Path, cells: Cells) -> None:
    """Replace cells.jsonl; a file that holds the content already is not touched."""
    text, path = cells.text(), folder / CELLS
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
