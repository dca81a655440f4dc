"""``looprepro plot``: figures from collected results, as png, pdf and a csv of what is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RESULTS, ResultsFolder, Scale, expansions_of, known_scale, readable_sweeps, say, sweep_names

if TYPE_CHECKING:
    from looprepro.analysis.results import Results
    from looprepro.planning import Expansion

NAMES = ["gram", "spectrum", "groups", "depth", "positions", "curves", "defect", "fixed_point"]
"""As looprepro.report.plots.FIGURES, and ``fixed_point``, all figures of the second paper; here for completion and help, which
must not import the room."""
Figures = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FIGURE]...",
        help=f"{', '.join(NAMES)} [default: every figure of every sweep that there are data for].",
        autocompletion=lambda: NAMES,
        show_default=False,
    ),
]
OfSweep = Annotated[str, typer.Option("--sweep", help="Whose cells are drawn.", autocompletion=sweep_names)]
Metric = Annotated[str | None, typer.Option("--metric", help="What groups and depth show; else what the sweep's table shows.")]


def plot(
    figures: Figures = None,
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

    if not figures:
        _every_figure(known_scale(scale), results)
        return
    for figure in figures:
        if figure not in (*FIGURES, "fixed_point"):
            raise ConfigError(f"unknown figure '{figure}'", f"Use one of {', '.join(NAMES)}")
    (expansion,) = expansions_of([sweep], False, scale, None, None)
    found = load_results(results, expansion.scale)
    for figure in figures:
        if figure == "fixed_point":
            _fixed_point(found)
            continue
        usual = expansion.layout.metric
        shown = metric or usual
        # Another metric is another figure: that of the table is not overwritten.
        variant = shown if shown != usual and figure in ("groups", "depth") else ""
        name, wanted = expansion.sweep.name, expansion.wanted
        for path in draw(figure, found, sweep=name, wanted=wanted, metric=shown, variant=variant):
            typer.echo(str(path))


def _every_figure(scale: str, folder: Path) -> None:
    """Draw what can be drawn, as the report does, and say why the rest is not. :class:`StoreError` where nothing can be."""
    from looprepro.analysis.results import load_results
    from looprepro.files.errors import StoreError
    from looprepro.report.plots import draw_all

    found = load_results(folder, scale)
    wanted = present_expansions(found)
    drawn, undrawn = draw_all(
        found,
        {name: expansion.wanted for name, expansion in wanted.items()},
        {name: expansion.layout.metric for name, expansion in wanted.items()},
    )
    for drawing in drawn:
        for path in drawing.paths:
            typer.echo(str(path))
    for line in undrawn:
        say(f"not drawn: {line}")
    if not drawn:
        raise StoreError(f"no figure is drawn of what was collected at scale {scale}", "Name one, and its sweep with --sweep")


def present_expansions(found: Results) -> dict[str, Expansion]:
    """The project's sweeps that have rows, expanded as they are today."""
    from looprepro.planning import available_sweeps, expand

    present = {row["sweep"] for row in found.rows} & set(available_sweeps())
    return {sweep.name: expand(sweep, found.scale) for sweep in readable_sweeps(sorted(present))}


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
        wanted = expand(load_sweep(FIGURES[stem][0]), found.scale).wanted
        for path in plot_fixed_point(stem, found, wanted):
            typer.echo(str(path))
