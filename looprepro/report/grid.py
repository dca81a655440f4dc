"""A table as a grid of texts: which columns stand side by side and what each says. The three formats for reading share it."""

from __future__ import annotations

from dataclasses import dataclass

from looprepro.analysis.table import ColumnHead, Entry, Table
from looprepro.report.numbers import DASH, difference, measured, number, sample


@dataclass(frozen=True)
class Text:
    """One entry as text: the number, and what must be said of its sample."""

    number: str
    sample: str = ""

    def __str__(self) -> str:
        return f"{self.number} ({self.sample})" if self.sample else self.number


@dataclass(frozen=True)
class Grid:
    """Heads and texts of all printed columns. ``heads[j]`` has one text per level, outermost first."""

    title: str
    corner: tuple[str, ...]
    """Heads of the columns that label the rows."""
    heads: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[Text, ...], ...]
    notes: tuple[str, ...]


def grid(table: Table) -> Grid:
    """Lay out ``table``: beside a column of ours stands the paper's, where the paper states a number for any of its rows."""
    heads: list[tuple[str, ...]] = []
    for column in table.columns:
        labels = tuple(with_role(label, role) for label, role in zip(column.labels, column.roles, strict=True))
        heads.append(labels)
        heads += [(*labels[:-1], head) for head in _paper_heads(table, column)]
    rows = []
    for entries in table.entries:
        texts: list[Text] = []
        for column, entry in zip(table.columns, entries, strict=True):
            texts.append(Text(measured(entry.mean, entry.se, table.decimals), sample(entry, table.common_n)))
            texts += _paper_texts(table, column, entry)
        rows.append(tuple(texts))
    return Grid(
        heading(table),
        table.row_axes,
        tuple(heads),
        tuple(tuple(with_role(label, role) for label, role in zip(row.labels, row.roles, strict=True)) for row in table.rows),
        tuple(rows),
        table.notes,
    )


def heading(table: Table) -> str:
    """The title, with the place in the paper and the scale: every number shown anywhere carries its scale."""
    place = "" if table.place in ("", table.title) else f" ({table.place})"
    return f"{table.title}{place}, {table.metric.replace('_', ' ')}, scale {table.scale}"


def with_role(label: str, role: str) -> str:
    """The printed label with the role beside it, where the label does not say it already.

    >>> with_role("conformal, G = 16", "d/2"), with_role("G = 2", "G=2"), with_role("1-D", "1d")
    ('conformal, G = 16 (d/2)', 'G = 2', '1-D')
    """
    return label if _letters(role) in _letters(label) else f"{label} ({role})"


def _letters(text: str) -> str:
    return "".join(text.lower().replace("_", " ").replace("-", " ").split())


def _paper_heads(table: Table, column: ColumnHead) -> list[str]:
    if column.paper is None:
        return []
    return [column.paper, "ours - paper", "paper in our 95% interval"] if table.compare else [column.paper]


def _paper_texts(table: Table, column: ColumnHead, entry: Entry) -> list[Text]:
    if column.paper is None:
        return []
    stated = Text(number(entry.reference.value if entry.reference else None, table.decimals))
    if not table.compare:
        return [stated]
    comparison = entry.comparison
    if comparison is None:
        return [stated, Text(DASH), Text(DASH)]
    inside = {True: "yes", False: "no", None: DASH}[comparison.inside]
    return [stated, Text(difference(comparison.difference, table.decimals)), Text(inside)]
