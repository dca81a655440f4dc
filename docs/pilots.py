"""Tables of docs/pilots.md: one line per pilot that results/pilots holds. docs/fill.py puts them into the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from looprepro.analysis.results import Points, Results
from looprepro.analysis.schema import Row
from looprepro.report.numbers import number


@dataclass(frozen=True)
class Column:
    """One number of a pilot: a metric at the T of a role (empty: at its only T), or the end of a curve of its training."""

    name: str
    metric: str = ""
    role: str = ""
    curve: str = ""
    decimals: int = 3


@dataclass(frozen=True)
class Section:
    """One table: which pilots, and what is read of each."""

    chosen: Callable[[Row], bool]
    columns: Sequence[Column]


WORDS = (
    *(Column(role, "last_token_accuracy", role) for role in ("T_max/2", "T_max", "3T_max/2")),
    Column("seen", "seen_in_training", "T_max", decimals=2),
    Column("loss at the end", curve="loss"),
)
HALTING = (
    Column("exact answers", "exact_accuracy"),
    Column("effective layers at halting", "effective_layers", decimals=1),
    Column("loss at the end", curve="loss"),
)
DEPTH = (
    Column("longest word above 90%", "max_length", decimals=0),
    Column("exact answers in training", curve="exact_accuracy"),
)

PILOTS = {
    "pilots-16-letters": Section(lambda row: row["sweep"] == "table1" and row["T_max"] == 16, WORDS),
    "pilots-half-budget": Section(lambda row: row["sweep"] == "table1" and row["T_max"] == 8 and bool(row["overrides"]), WORDS),
    "pilots-kept": Section(lambda row: row["sweep"] == "table1" and not row["overrides"], WORDS),
    "pilots-adaptive": Section(lambda row: row["sweep"] == "fprm_adaptive", HALTING),
    "pilots-depth": Section(lambda row: row["sweep"] == "fprm_depth", DEPTH),
}
"""Name of a block -> its table."""


def pilot_columns(section: Section) -> tuple[str, ...]:
    """Names of the columns of :func:`pilot_lines`."""
    return ("pilot", "seed", *(column.name for column in section.columns), "steps", "seconds")


def pilot_lines(section: Section, found: Results) -> Iterator[tuple[str, ...]]:
    """One line per cell, by place and seed. What all of them override is left out of their names."""
    cells: dict[str, list[Row]] = {}
    for row in filter(section.chosen, found.rows):
        cells.setdefault(row["cell"], []).append(row)
    changes = {id: rows[0]["overrides"].split() for id, rows in cells.items()}
    common = set[str]().union(*changes.values()).intersection(*changes.values())
    places = {id: ", ".join(_place(rows[0], [one for one in changes[id] if one not in common])) for id, rows in cells.items()}
    curves = {column.curve: found.series(column.curve) for column in section.columns if column.curve}
    for id, rows in sorted(cells.items(), key=lambda one: (places[one[0]], one[1][0]["seed"])):
        values = (_end(curves[column.curve].get(id)) if column.curve else _metric(column, rows) for column in section.columns)
        numbers = (number(value, column.decimals) for column, value in zip(section.columns, values, strict=True))
        yield (places[id], str(rows[0]["seed"]), *numbers, str(rows[0]["steps"]), f"{3600 * rows[0]['wall_hours']:.0f}")


def _end(curve: Points | None) -> float | None:
    return curve[1][-1] if curve else None


def _metric(column: Column, rows: Sequence[Row]) -> float | None:
    values = (row["value"] for row in rows if row["metric"] == column.metric and column.role in ("", row["role_T"]))
    return next(values, None)


def _place(row: Row, changes: Sequence[str]) -> Iterator[str]:
    """Where a pilot stands in its sweep, and what it changes there: ``A5``, ``diagonal``, ``task.length=16``."""
    for name in sorted(row):
        if name.startswith("axis_") and row[name] is not None:
            yield str(row.get(name.replace("axis_", "label_", 1)) or row[name])
    yield from (f"`{one}`" for one in changes)
