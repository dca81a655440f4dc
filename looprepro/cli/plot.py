"""``looprepro plot``: figures from collected results, as png, pdf and a csv of what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RESULTS, ResultsFolder, Scale, expansions_of, sweep_names

if TYPE_CHECKING:
    from looprepro.analysis.results import Results

NAMES = ["gram", "spectrum", "groups", "depth", "positions", "curves", "defect", "fixed_point"]
"""As looprepro.report.plots.FIGURES, and ``fixed_point``, all figures of the second paper; here for completion and help, which
must not import the room."""
Figures = Annotated[list[str], typer.Argument(metavar="FIGURE...", help=f"{', '.join(NAMES)}.", autocompletion=lambda: NAMES)]
OfSweep = Annotated[str, typer.Option("--sweep", help="Whose cells are drawn.", autocompletion=sweep_names)]
Metric = Annotated[str | None, typer.Option("--metric", help="What groups and depth show; else what the sweep's table shows.")]


def plot(
    figures: Figures,
    sweep: OfSweep = "table1",
    scale: Scale = None,
    results: ResultsFolder = RESULTS,
    metric: Metric = None,
) -> None:
    """Draw figures into results/<scale>/figures/ and print the paths."""
    from looprepro.analysis.results import load_results
    from looprepro.files.errors import ConfigError
    from looprepro.report.plots import FIGURES
    from looprepro.report.plots import plot as draw

    for figure in figures:
        if figure not in (*FIGURES, "fixed_point"):
            raise ConfigError(f"unknown figure '{figure}'", f"Use one of {', '.join(NAMES)}")
    (expansion,) = expansions_of([sweep], False, scale, None, None)
    found = load_results(results, expansion.scale)
    cells = {planned.id for planned in expansion.cells}
    for figure in figures:
        if figure == "fixed_point":
            _fixed_point(found)
            continue
        for path in draw(figure, found, sweep=expansion.sweep.name, cells=cells, metric=metric or expansion.layout.metric):
            typer.echo(str(path))


def _fixed_point(found: Results) -> None:
    """Every figure of Fixed-Point Reasoners that the collected sweeps allow."""
    from looprepro.files.errors import StoreError
    from looprepro.planning import expand, load_sweep
    from looprepro.report.fixed_point import FIGURES, drawable
    from looprepro.report.plots import plot_fixed_point

    stems = list(drawable(found))
    if not stems:
        raise StoreError(
            f"no sweep of Fixed-Point Reasoners was collected at scale {found.scale}",
            f"Run: looprepro sweep fprm_fig1 --scale {found.scale}; looprepro collect --scale {found.scale}",
        )
    for stem in stems:
        cells = {planned.id for planned in expand(load_sweep(FIGURES[stem][0]), found.scale).cells}
        for path in plot_fixed_point(stem, found, cells):
            typer.echo(str(path))
