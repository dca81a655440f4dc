"""``looprepro collect``: runs/ to results/<scale>/, and the tables rendered anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RESULTS, RUNS, Json, ResultsFolder, Runs, Scale, expansions_of, known_scale, say

if TYPE_CHECKING:
    from looprepro.analysis.table import Table

Prune = Annotated[bool, typer.Option("--prune", help="Delete the rows of cells whose folder is gone, instead of keeping them.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="Numbers that are missing are named, but are no reason for exit code 1.")
]
SHOWN = 20


def collect(
    scale: Scale = None,
    runs: Runs = RUNS,
    results: ResultsFolder = RESULTS,
    prune: Prune = False,
    partial: Partial = False,
    as_json: Json = False,
) -> None:
    """Gather every finished cell into results/<scale>/ and render the tables there. Exit code 1 while numbers are missing.

    What was collected before stays, so that without runs/ the tables are rendered from results/<scale>/ alone.
    """
    from looprepro.analysis.collect import collect_scale
    from looprepro.files.errors import StoreError
    from looprepro.report.tables import write_tables
    from looprepro.store import Store

    if results.exists() and not results.is_dir():
        raise StoreError(f"{results} is not a folder", "Check the path, or choose another one with --results")
    wanted = known_scale(scale)
    found = collect_scale(Store(runs), results, wanted, prune=prune)
    for line in (*found.problems, *found.warnings):
        say(f"warning: {line}")
    tables = tables_of_scale(results, wanted)
    written = write_tables(tables, results)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "scale": wanted,
                    "rows": found.rows,
                    "status": found.statuses,
                    "missing": list(found.missing),
                    "problems": list(found.problems),
                    "warnings": list(found.warnings),
                    "tables": [str(path) for path in written],
                },
                indent=2,
            )
        )
    else:
        counts = ", ".join(f"{n} {name}" for name, n in sorted(found.statuses.items()))
        counts = counts or f"none in {runs}, so that all is as it was collected"
        typer.echo(f"{found.folder / 'results.parquet'}: {found.rows} rows; cells: {counts}")
        if written:
            typer.echo(f"{found.folder / 'tables'}: {', '.join(sorted({path.stem for path in written}))}")
        for name in found.missing[:SHOWN]:
            say(f"missing: {name}")
        if len(found.missing) > SHOWN:
            say(f"and {len(found.missing) - SHOWN} more numbers are missing (looprepro status)")
    if short := [table.name for table in tables if not table.complete]:
        say(f"incomplete: {', '.join(short)} (looprepro status --scale {wanted})")
    if found.problems or (found.missing and not partial):
        raise typer.Exit(1)


def tables_of_scale(results: Path, scale: str) -> list[Table]:
    """The tables of every sweep that has rows at ``scale``, without overrides."""
    from looprepro.analysis.fill import build_table
    from looprepro.analysis.references import load_references
    from looprepro.analysis.results import load_results
    from looprepro.analysis.table_plan import table_plan

    rows = load_results(results, scale).rows
    present = {row["sweep"] for row in rows}
    return [
        build_table(table_plan(expansion), rows, load_references(expansion.sweep))
        for expansion in expansions_of(None, True, scale, None, None, lenient=True)
        if expansion.sweep.name in present and expansion.sweep.kind == "table"
    ]
