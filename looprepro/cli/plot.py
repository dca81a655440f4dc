"""``looprepro plot``: figures from collected results, as png, pdf and a csv of what is drawn."""

from __future__ import annotations

from typing import Annotated

import typer

from looprepro.cli.options import RESULTS, ResultsFolder, Scale, expansions_of, sweep_names

NAMES = ["gram", "spectrum", "groups", "depth", "positions", "curves", "defect"]
"""As looprepro.report.plots.FIGURES; here for completion and help, which must not import the room."""
Figures = Annotated[list[str], typer.Argument(metavar="FIGURE...", help=f"{', '.join(NAMES)}.", autocompletion=lambda: NAMES)]
OfSweep = Annotated[str, typer.Option("--sweep", help="Whose cells are drawn.", autocompletion=sweep_names)]
Metric = Annotated[str, typer.Option("--metric", help="What groups and depth show.")]


def plot(
    figures: Figures,
    sweep: OfSweep = "table1",
    scale: Scale = None,
    results: ResultsFolder = RESULTS,
    metric: Metric = "last_token_accuracy",
) -> None:
    """Draw figures into results/<scale>/figures/ and print the paths."""
    from looprepro.analysis.results import load_results
    from looprepro.files.errors import ConfigError
    from looprepro.report.plots import FIGURES
    from looprepro.report.plots import plot as draw

    for figure in figures:
        if figure not in FIGURES:
            raise ConfigError(f"unknown figure '{figure}'", f"Use one of {', '.join(FIGURES)}")
    (expansion,) = expansions_of([sweep], False, scale, None, None)
    found = load_results(results, expansion.scale)
    cells = {planned.id for planned in expansion.cells}
    for figure in figures:
        for path in draw(figure, found, sweep=expansion.sweep.name, cells=cells, metric=metric):
            typer.echo(str(path))
