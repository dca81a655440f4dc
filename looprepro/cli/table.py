"""``looprepro table``: one table from collected results, in five formats."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from looprepro.cli.options import (
    DEFAULT_SCALE,
    RESULTS,
    Only,
    Overrides,
    ResultsFolder,
    Scale,
    Seeds,
    Target,
    chosen_scale,
    say,
)

Format = Annotated[str, typer.Option("--format", "-f", help="rich, md, latex, csv or json.")]
Drop = Annotated[
    bool, typer.Option("--drop-diverged", help="Leave diverged seeds out of what is wanted; recorded in the table.")
]
Compare = Annotated[bool, typer.Option("--compare", help="Ours against the paper's numbers (scale paper only).")]


def table(
    sweep: Target,
    overrides: Overrides = None,
    scale: Scale = None,
    only: Only = None,
    seeds: Seeds = None,
    results: ResultsFolder = RESULTS,
    format: Format = "rich",
    drop_diverged: Drop = False,
    compare: Compare = False,
) -> None:
    """Print a table: mean ± standard error over seeds, n, what is missing, and the paper's number (exit code 1: incomplete)."""
    import shutil

    from looprepro.analysis.fill import build_table, check_metric
    from looprepro.analysis.references import load_references
    from looprepro.analysis.results import load_results
    from looprepro.analysis.table_plan import table_plan
    from looprepro.files.errors import ConfigError
    from looprepro.planning import expand, load_sweep
    from looprepro.report.tables import SUFFIXES, render

    if format not in SUFFIXES:
        raise ConfigError(f"unknown format '{format}'", f"Use one of {', '.join(SUFFIXES)}")
    loaded = load_sweep(sweep)
    expansion = expand(loaded, scale or DEFAULT_SCALE, overrides=overrides or (), only=only or (), seeds=seeds)
    wanted = chosen_scale(scale, [expansion])
    found = load_results(results, wanted)
    check_metric(table_plan(expansion), found.rows)
    built = build_table(
        table_plan(expansion), found.rows, load_references(loaded), drop_diverged=drop_diverged, compare=compare
    )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    typer.echo(render(built, format, width=width), nl=False)
    if not built.complete:
        say(f"incomplete: looprepro status {sweep} --scale {wanted} says what is missing")
        raise typer.Exit(1)
