"""What all figures share: the look, colours that colour-blind readers tell apart, and files with equal bytes for equal data."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Method
from looprepro.files.atomic import write_text, write_with
from looprepro.files.errors import StoreError
from looprepro.planning import available_sweeps, load_sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, ordered so that neighbours differ in lightness too."""
BLACK = "#000000"
GREY = "#666666"
MARKERS = ("o", "s", "^", "D", "v", "P")

STYLE: Any = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "figure.titlesize": 10,
    "figure.constrained_layout.h_pad": 0.08,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,
    "svg.hashsalt": "looprepro",
}


@contextmanager
def style() -> Iterator[None]:
    """The look of this project, whatever the user's own matplotlibrc says; draw and save inside it."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def new_figure(
    columns: int, rows: int = 1, *, width: float, height: float, square: bool = False, legend: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """A grid of panels (inches each) on a canvas without display; axes in reading order.

    ``square``: equal aspect. ``legend``: inches for a legend on the right.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    # A single narrow panel would cut the title off.
    size = (max(width * columns, 4.6) + legend, height * rows)
    figure = MatplotlibFigure(figsize=size, layout="compressed" if square else "constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Figure, folder: Path, stem: str, drawn: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write ``stem``.png, .pdf and .csv (what is drawn) into ``folder``; no date and no version in any of them."""
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    }
    paths = []
    for suffix, kept in metadata.items():
        path = folder / f"{stem}.{suffix}"

        def draw(temporary: Path, suffix: str = suffix, kept: dict[str, Any] = kept) -> None:
            figure.savefig(temporary, format=suffix, metadata=kept)

        write_with(path, draw)
        paths.append(path)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(drawn[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(drawn)
    write_text(folder / f"{stem}.csv", text.getvalue())
    return [*paths, folder / f"{stem}.csv"]


def method_colours(methods: Sequence[Method]) -> dict[Method, Any]:
    """Black for the diagonal (grey where a sweep has another), viridis from dark to light along the groups: order is
    readable in grey print, too."""
    import matplotlib

    ramp = matplotlib.colormaps["viridis"]
    others = [method for method in methods if method.family != "diagonal"]
    diagonals = [method for method in methods if method.family == "diagonal"]
    colours: dict[Method, Any] = {method: GREY if index else BLACK for index, method in enumerate(diagonals)}
    for index, method in enumerate(others):
        colours[method] = ramp(0.1 + 0.78 * index / max(1, len(others) - 1))
    return colours


def words(metric: str) -> str:
    """A metric's name for an axis; of a series over layers or difficulty what is on its y axis.

    >>> words("perplexity_packed"), words("exact_accuracy_by_layers")
    ('perplexity packed', 'exact accuracy')
    """
    return metric.split("_by_")[0].replace("_", " ")


def stand_in(sweep: str, scale: str) -> str:
    """What stands in for the paper's data, from the scale's note: a picture leaves its table. Else ""."""
    if sweep not in available_sweeps() or scale not in (loaded := load_sweep(sweep)).scales:
        return ""
    note = loaded.scale(scale).note
    return note.split(";")[0].rstrip(".") if note.startswith("stand-in") else ""


def seeds_text(counts: Collection[int]) -> str:
    """How many seeds the drawn points have.

    >>> seeds_text([3, 3]), seeds_text([1, 3])
    ('n = 3 seeds', 'n = 1 to 3 seeds')
    """
    fewest, most = min(counts), max(counts)
    return f"n = {most} seeds" if fewest == most else f"n = {fewest} to {most} seeds"


def nothing_to_draw(results: Results, sweep: str, what: str, metric: str | None = None) -> StoreError:
    """The error where the collected cells of a sweep have no ``what``; of a ``metric`` that none has, with those they have."""
    known = sorted({row["metric"] for row in results.rows if row["sweep"] == sweep and row.get("metric")})
    remedy = f"Run: looprepro sweep {sweep} --scale {results.scale}; looprepro collect --scale {results.scale}"
    if metric is not None and known and metric not in known:
        remedy = f"It has {', '.join(known)}"
    return StoreError(f"{sweep} at scale {results.scale} has no {what}", remedy)


def in_order(sweep: str, axis: str, names: Mapping[str, str]) -> list[str]:
    """Printed names (each with its role on ``axis``) in the order of the sweep file, as in its table; others behind."""
    points = load_sweep(sweep).axes.get(axis, ()) if sweep in available_sweeps() else ()
    place = {point.role: index for index, point in enumerate(points)}
    return sorted(names, key=lambda name: place.get(names[name], len(place)))
