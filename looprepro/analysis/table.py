"""The one table structure: entries that know their sample, their gaps and the paper's number.

:class:`TablePlan` says what is wanted, :func:`looprepro.analysis.fill.build_table` turns it and rows of results.parquet
into a :class:`Table`, report/tables.py renders that in five formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from looprepro.analysis.references import Reference


@dataclass(frozen=True)
class WantedEvaluation:
    """One measurement that an entry needs."""

    id: str
    role: str
    T: int


@dataclass(frozen=True)
class WantedCell:
    """One training run that a table needs, with its role and its printed label on every axis."""

    id: str
    seed: int
    roles: Mapping[str, str]
    labels: Mapping[str, str]
    evaluations: tuple[WantedEvaluation, ...]


@dataclass(frozen=True)
class TablePlan:
    """What a sweep wants at one scale, and how it is laid out."""

    name: str
    title: str
    place: str
    """Where the table stands in the paper."""
    scale: str
    rows: tuple[str, ...]
    """Axes that make the rows."""
    columns: tuple[str, ...]
    """Axes that make the columns, outermost first; "T" is the axis of budgets."""
    metric: str
    decimals: int
    wanted: tuple[WantedCell, ...]
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Axis -> its roles in their order; an axis without one has them as ``wanted`` does."""
    overrides: tuple[str, ...] = ()
    note: str = ""
    """What this scale shows and does not show."""
    beside: tuple[str, ...] = ()
    """Metrics whose values over the whole table a note names."""
    paper_width: int | None = None
    paper_budgets: Mapping[str, int] = field(default_factory=dict)
    """Role of T -> T at scale paper, for the label of the paper's column."""
    paper_rows: Mapping[str, str] = field(default_factory=dict)
    """Role -> the paper's label on the first row axis, where rows differ in width and this scale has labels of its own."""


@dataclass(frozen=True)
class Comparison:
    """Ours against the paper's number; exists at scale paper only."""

    difference: float
    inside: bool | None
    """The paper's number lies in our 95% interval; None where n < 2 leaves no interval."""


@dataclass(frozen=True)
class Entry:
    """One number of a table; ``n + missing + failed + diverged + repeated == wanted`` (dropped seeds are not wanted)."""

    mean: float | None
    se: float | None
    low: float | None
    """Lower end of the 95% Student t interval for the mean."""
    high: float | None
    n: int
    """Distinct seeds in the mean."""
    wanted: int
    """0 where the table leaves the combination out."""
    missing: int = 0
    failed: int = 0
    diverged: int = 0
    repeated: int = 0
    """Seeds whose run repeats another seed's, bit for bit."""
    reference: Reference | None = None
    comparison: Comparison | None = None

    @property
    def complete(self) -> bool:
        """Every wanted seed is in the mean."""
        return self.n == self.wanted


@dataclass(frozen=True)
class RowHead:
    """What a row is: role and printed label on every row axis."""

    roles: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ColumnHead:
    """What a column is, one label per level; ``paper`` heads the paper's own column beside it, where it states a number."""

    roles: tuple[str, ...]
    labels: tuple[str, ...]
    paper: str | None = None


@dataclass(frozen=True)
class Table:
    """A table, ready to be rendered in any format. ``entries[i][j]`` belongs to ``rows[i]`` and ``columns[j]``."""

    name: str
    title: str
    place: str
    scale: str
    metric: str
    decimals: int
    row_axes: tuple[str, ...]
    column_axes: tuple[str, ...]
    rows: tuple[RowHead, ...]
    columns: tuple[ColumnHead, ...]
    entries: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    drop_diverged: bool = False
    compare: bool = False

    @property
    def complete(self) -> bool:
        """Nothing can be added: every wanted seed has its number, or diverged, which is a result."""
        return not any(entry.missing or entry.failed or entry.repeated for row in self.entries for entry in row)

    @property
    def common_n(self) -> int | None:
        """n of the complete entries where it is one and the same; entries that differ say so themselves."""
        counts = {entry.n for row in self.entries for entry in row if entry.complete and entry.wanted}
        return counts.pop() if len(counts) == 1 else None
