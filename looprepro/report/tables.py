"""Render the one table structure five ways: terminal (rich), markdown, LaTeX, CSV, JSON. Equal input gives equal bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from looprepro.analysis.results import folder_of
from looprepro.analysis.table import Entry, Table
from looprepro.config.identity import digest
from looprepro.files.atomic import write_text
from looprepro.files.errors import ConfigError
from looprepro.files.json_files import pretty_json
from looprepro.report.grid import Grid, grid, heading
from looprepro.report.latex import latex
from looprepro.report.numbers import measured, sample

if TYPE_CHECKING:
    from rich.table import Table as RichTable

SUFFIXES = {"rich": "txt", "md": "md", "latex": "tex", "csv": "csv", "json": "json"}
"""Format -> suffix of its file."""


def render(table: Table, format: str = "rich", *, width: int | None = None) -> str:
    """``table`` as text. ``width``: columns of the terminal (rich only); None lets the table be as wide as it is."""
    if format == "rich":
        return terminal(table, width)
    renderers: dict[str, Callable[[Table], str]] = {"md": markdown, "latex": latex, "csv": comma_separated, "json": json_text}
    if format not in renderers:
        raise ConfigError(f"unknown format '{format}'", f"Use one of {', '.join(SUFFIXES)}")
    return renderers[format](table)


def write_tables(tables: Iterable[Table], results_dir: Path) -> list[Path]:
    """Write every table in every format to results/<scale>/tables/; the paths written."""
    written = []
    for table in tables:
        folder = folder_of(results_dir, table.scale) / "tables"
        stem = f"{table.name}-{digest(table.overrides)[:8]}" if table.overrides else table.name
        for format, suffix in SUFFIXES.items():
            path = folder / f"{stem}.{suffix}"
            write_text(path, render(table, format))
            written.append(path)
    return written


def terminal(table: Table, width: int | None = None) -> str:
    """For the eye: plain text without colour codes, so that a pipe gets the same.

    Where the table is wider than ``width``, each group of the outermost column level gets a block of its own.
    """
    layout = grid(table)
    everything = list(range(len(layout.heads)))
    groups = [everything]
    if width is not None and len(layout.heads[0]) > 1:
        natural = max(map(len, _block(layout, everything, None).splitlines()))
        if natural > width:
            outer = dict.fromkeys(head[0] for head in layout.heads)
            groups = [[j for j in everything if layout.heads[j][0] == name] for name in outer]
    blocks = [_block(layout, group, width) for group in groups]
    return "\n".join([layout.title, "", *(f"{block}\n" for block in blocks), *layout.notes, ""])


def _block(layout: Grid, chosen: list[int], width: int | None) -> str:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=10_000 if width is None else width,
        color_system=None,
        legacy_windows=False,
        highlight=False,
        markup=False,
    )
    with console.capture() as captured:
        console.print(_rich(layout, chosen))
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def _rich(layout: Grid, chosen: list[int]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in layout.corner:
        shown.add_column(RichText(name))
    for j in chosen:
        head = "\n".join(layout.heads[j]).replace(" (", "\n(").replace(", ", ",\n")
        shown.add_column(RichText(head), justify="right")
    for labels, texts in zip(layout.labels, layout.texts, strict=True):
        cells = (f"{texts[j].number}\n{texts[j].sample}" if texts[j].sample else texts[j].number for j in chosen)
        shown.add_row(*map(RichText, labels), *map(RichText, cells))
    return shown


def markdown(table: Table) -> str:
    """A GitHub table; the levels of a head are joined by commas."""
    layout = grid(table)
    head = [*layout.corner, *(", ".join(levels) for levels in layout.heads)]
    rules = ["---"] * len(layout.corner) + ["---:"] * len(layout.heads)
    lines = [f"**{layout.title}**", "", _pipes(head), _pipes(rules)]
    lines += [_pipes([*labels, *map(str, texts)]) for labels, texts in zip(layout.labels, layout.texts, strict=True)]
    return "\n".join([*lines, "", *(f"- {note}" for note in layout.notes), ""])


def comma_separated(table: Table) -> str:
    """Long form: one line per entry with every number at full precision, and the printed text."""
    records = list(_records(table))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def json_text(table: Table) -> str:
    """One document: what the table is, its entries, its notes."""
    return pretty_json(
        {
            "schema": 1,
            "name": table.name,
            "title": table.title,
            "heading": heading(table),
            "place": table.place,
            "scale": table.scale,
            "metric": table.metric,
            "overrides": list(table.overrides),
            "drop_diverged": table.drop_diverged,
            "complete": table.complete,
            "entries": list(_records(table)),
            "notes": list(table.notes),
        }
    )


def _records(table: Table) -> Iterable[dict[str, Any]]:
    for row, entries in zip(table.rows, table.entries, strict=True):
        for column, entry in zip(table.columns, entries, strict=True):
            record: dict[str, Any] = {"table": table.name, "scale": table.scale}
            axes = (*table.row_axes, *table.column_axes)
            for axis, role, label in zip(axes, row.roles + column.roles, row.labels + column.labels, strict=True):
                record |= {axis: label, f"{axis}_role": role}
            yield record | {"metric": table.metric} | _values(table, entry) | {"paper_label": column.paper}


def _values(table: Table, entry: Entry) -> dict[str, Any]:
    values: dict[str, Any] = {
        "text": measured(entry.mean, entry.se, table.decimals),
        "sample": sample(entry, table.common_n),
        "mean": entry.mean,
        "se": entry.se,
        "low": entry.low,
        "high": entry.high,
        "n": entry.n,
        "wanted": entry.wanted,
        "missing": entry.missing,
        "failed": entry.failed,
        "diverged": entry.diverged,
        "repeated": entry.repeated,
        "drop_diverged": table.drop_diverged,
        "paper": entry.reference.value if entry.reference else None,
        "paper_place": entry.reference.stated_in if entry.reference else None,
    }
    if table.compare:
        values["difference"] = entry.comparison.difference if entry.comparison else None
        values["paper_inside_interval"] = entry.comparison.inside if entry.comparison else None
    return values


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
