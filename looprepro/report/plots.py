"""The figures by name. Each kind has its file; all read collected results and write png, pdf and csv."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from looprepro.analysis.results import Results
from looprepro.files.errors import ConfigError
from looprepro.report.curves import curves
from looprepro.report.defect import defect
from looprepro.report.depth import depth
from looprepro.report.figure import style
from looprepro.report.fixed_point import draw as draw_fixed_point
from looprepro.report.gram import gram
from looprepro.report.groups import groups
from looprepro.report.positions import positions
from looprepro.report.spectrum import spectrum

FIGURES = ("gram", "spectrum", "groups", "depth", "positions", "curves", "defect")
"""Names that ``looprepro plot`` accepts."""
DEFAULT_SWEEP = "table1"


def plot_fixed_point(stem: str, results: Results, cells: Collection[str] | None) -> list[Path]:
    """Draw one figure of Fixed-Point Reasoners (report/fixed_point.py); the paths of png, pdf and csv."""
    with style():
        return draw_fixed_point(stem, results, results.folder / "figures", cells)


def plot(
    name: str,
    results: Results,
    *,
    sweep: str = DEFAULT_SWEEP,
    cells: Collection[str] | None = None,
    metric: str = "last_token_accuracy",
) -> list[Path]:
    """Draw figure ``name`` from ``results`` into results/<scale>/figures/; the paths of png, pdf and csv.

    ``cells``: ids that the sweep wants today, so that runs of an older sweep file stay out. ``metric``: for ``groups`` and
    ``depth``. :class:`StoreError` where nothing was collected that it could show.
    """
    folder = results.folder / "figures"
    stem = name if sweep == DEFAULT_SWEEP else f"{name}-{sweep}"
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
            return of_cells[name](results, folder, stem, sweep, cells)
        return (groups if name == "groups" else depth)(results, folder, stem, sweep, cells, metric)
