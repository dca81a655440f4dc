"""The figures by name. Each kind has its file; all read collected results and write png, pdf and csv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted
from looprepro.files.errors import ConfigError, StoreError
from looprepro.report.curves import curves
from looprepro.report.defect import defect
from looprepro.report.depth import depth
from looprepro.report.figure import style
from looprepro.report.fixed_point import FIGURES as FIXED_POINT
from looprepro.report.fixed_point import draw as draw_fixed_point
from looprepro.report.fixed_point import drawable
from looprepro.report.gram import gram
from looprepro.report.groups import groups
from looprepro.report.positions import positions
from looprepro.report.spectrum import spectrum

FIGURES = ("gram", "spectrum", "groups", "depth", "positions", "curves", "defect")
"""Names that ``looprepro plot`` accepts."""
DEFAULT_SWEEP = "table1"
CAPTIONS = {
    "gram": "Figure 2: cosines between the directions of a written state after t and s steps.",
    "spectrum": "Figure 3: eigenvalues of the state map in the unit disk.",
    "groups": "What the table shows over the number of groups; the diagonal baseline at the same T as a dashed line.",
    "depth": "What the table shows over the steps given at evaluation.",
    "positions": "Accuracy by position of the word at each number of steps.",
    "curves": "Training loss.",
    "defect": "Toeplitz defect over the number of steps, for probes on the whole sphere and inside one group.",
}
FIGURES_OF_SWEEPS = (
    ("table1", tuple(CAPTIONS)),
    ("table2", ("groups",)),
    ("table4", ("depth",)),
    ("table5", ("defect",)),
    ("table8", ("groups",)),
)
"""Sweep -> figures that are drawn of it where nobody chooses."""


@dataclass(frozen=True)
class Drawing:
    """A figure that was drawn: its files (png, pdf, csv) and what it shows."""

    stem: str
    caption: str
    paths: tuple[Path, ...]


def draw_all(results: Results, wanted: Mapping[str, Wanted], metrics: Mapping[str, str]) -> tuple[list[Drawing], list[str]]:
    """Draw every figure that there are data for; one line of reason for each of the others.

    ``wanted``: sweep -> its cells and evaluations of today. ``metrics``: sweep -> what its table shows.
    """
    drawn: list[Drawing] = []
    undrawn: list[str] = []
    for sweep, names in FIGURES_OF_SWEEPS:
        for name in names if sweep in wanted else ():
            try:
                metric = metrics.get(sweep, "last_token_accuracy")
                paths = plot(name, results, sweep=sweep, wanted=wanted[sweep], metric=metric)
            except StoreError as error:
                undrawn.append(f"{name}: {error.message}")
                continue
            caption = CAPTIONS[name] + (f" {sweep}." if sweep != DEFAULT_SWEEP else "")
            drawn.append(Drawing(paths[0].stem, caption, tuple(paths)))
    for stem in drawable(results) if wanted else ():
        sweep, _, caption = FIXED_POINT[stem]
        try:
            drawn.append(Drawing(stem, caption, tuple(plot_fixed_point(stem, results, wanted.get(sweep)))))
        except StoreError as error:
            undrawn.append(f"{stem}: {error.message}")
    return drawn, undrawn


def plot_fixed_point(stem: str, results: Results, wanted: Wanted | None) -> list[Path]:
    """Draw one figure of Fixed-Point Reasoners (report/fixed_point.py); the paths of png, pdf and csv."""
    with style():
        return draw_fixed_point(stem, results, results.folder / "figures", wanted)


def plot(
    name: str,
    results: Results,
    *,
    sweep: str = DEFAULT_SWEEP,
    wanted: Wanted | None = None,
    metric: str = "last_token_accuracy",
    variant: str = "",
) -> list[Path]:
    """Draw figure ``name`` from ``results`` into results/<scale>/figures/; the paths of png, pdf and csv.

    ``wanted``: cells and evaluations of the sweep today, so that rows of an older sweep file stay out. ``metric``: for
    ``groups`` and ``depth``. ``variant`` ends the files' names. :class:`StoreError` where nothing was collected that
    it could show.
    """
    folder = results.folder / "figures"
    stem = "-".join(part for part in (name, "" if sweep == DEFAULT_SWEEP else sweep, variant) if part)
    if name not in FIGURES:
        raise ConfigError(f"unknown figure '{name}'", f"Use one of {', '.join(FIGURES)}")
    of_cells: dict[str, Callable[..., list[Path]]] = {
        "gram": gram,
        "spectrum": spectrum,
        "positions": positions,
        "curves": curves,
        "defect": defect,
    }
    with style():
        if name in of_cells:
            return of_cells[name](results, folder, stem, sweep, wanted)
        return (groups if name == "groups" else depth)(results, folder, stem, sweep, wanted, metric)
