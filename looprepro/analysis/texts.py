"""Whether the cells of a sweep saw the same text: a corpus is known by its name, and its content depends on versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from looprepro.store import CellRecord


@dataclass
class TextsSeen:
    """(Sweep, name of the corpus) -> content -> a cell that was measured on it."""

    _cells: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def add(self, record: CellRecord, sweeps: Iterable[str]) -> None:
        """Take up the text that the evaluations of ``record`` name; those of other families name none."""
        name = record.config.get("task", {}).get("data")
        contents = {str(document["data"]) for document in record.evaluations.values() if "data" in document}
        for sweep in sweeps if name is not None else ():
            for content in contents:
                self._cells.setdefault((sweep, str(name)), {}).setdefault(content, record.id)

    def problems(self) -> list[str]:
        """One line per sweep and corpus of which there are several contents: such numbers cannot stand in one table."""
        return [
            f"{sweep}: cells were measured on different text called {name}: "
            + ", ".join(f"{content[:12]} ({cell})" for content, cell in sorted(cells.items()))
            for (sweep, name), cells in sorted(self._cells.items())
            if len(cells) > 1
        ]
