"""The figures by name. Each kind has its file; all read collected results and write png, pdf and csv."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from looprepro.analysis.results import Results
from looprepro.files.errors import ConfigError
from looprepro.report.curves import curves
from looprepro.report.figure import style
from looprepro.report.groups import groups
from looprepro.report.spectrum import spectrum

FIGURES = ("spectrum", "curves", "groups")
"""Names that ``looprepro plot`` accepts."""
DEFAULT_SWEEP = "table1"


def plot(
    name: str,
    results: Results,
    *,
    sweep: str = DEFAULT_SWEEP,
    cells: Collection[str] | None = None,
    metric: str = "last_token_accuracy",
) -> list[Path]:
    """Draw figure ``name`` from ``results`` into results/<scale>/figures/; the paths of png, pdf and csv.

    ``cells``: ids that the sweep wants today, so that runs of an older sweep file stay out. ``metric``: for ``groups``.
    :class:`StoreError` where nothing was collected that it could show.
    """
    folder = results.folder / "figures"
    stem = name if sweep == DEFAULT_SWEEP else f"{name}-{sweep}"
    if name not in FIGURES:
        raise ConfigError(f"unknown figure '{name}'", f"Use one of {', '.join(FIGURES)}")
    with style():
        if name == "spectrum":
            return spectrum(results, folder, stem, sweep, cells)
        if name == "curves":
            return curves(results, folder, stem, sweep, cells)
        return groups(results, folder, stem, sweep, cells, metric)
