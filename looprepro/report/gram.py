"""Figure 2: cosines between the directions A^t u and A^s u of one written state u, as a heat map per operator.

Constant along the diagonals (Toeplitz) means that a comparison of two states does not depend on where in the loop they sit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Method, Wanted, first_panel, method_of, of_sweep, panel_of
from looprepro.analysis.schema import Row
from looprepro.report.figure import new_figure, nothing_to_draw, save

SPHERE, GROUP = "gram@sphere", "gram@group"
SERIES = (SPHERE, GROUP)


@dataclass(frozen=True)
class Panel:
    """One Gram matrix."""

    method: Method
    row: Row
    write: str
    """Where u lies."""
    cosines: list[list[float]]


def gram(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None) -> list[Path]:
    """The diagonal, conformal G = 1, and the smallest conformal G > 1 with u inside one group and across its groups."""
    panels = _panels(results, sweep, wanted)
    if not panels:
        raise nothing_to_draw(results, sweep, "Gram matrix of a finished cell")
    lowest = min(value for panel in panels for row in panel.cosines for value in row)
    floor = max(-1.0, math.floor(10 * lowest) / 10)
    figure, axes = new_figure(len(panels), width=2.6, height=3.5, square=True)
    images = []
    for index, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        images.append(axis.imshow(panel.cosines, cmap="cividis", vmin=floor, vmax=1.0, interpolation="nearest"))
        axis.spines[:].set_visible(False)
        axis.set_title(f"{panel.method.label}\n{panel.write}\nseed {panel.row['seed']}, trained")
        ticks = range(0, len(panel.cosines), max(1, len(panel.cosines) // 4))
        axis.set(xticks=ticks, yticks=ticks, xlabel="step s")
        axis.set_ylabel("step t" if index == 0 else "")
    figure.colorbar(images[0], ax=axes, shrink=0.7, label=r"cosine of $A^t u$ and $A^s u$")
    first = panels[0].row
    where = "".join(f", {text}" for text in (panel_of(first),) if text)
    size = f"width {first['width']}, scale {results.scale}"
    figure.suptitle(f"Directions along the powers of A: equal along diagonals = no defect\n{sweep}{where}, {size}")
    drawn = [
        {"method": p.method.label, "write": p.write, "cell": p.row["cell"], "seed": p.row["seed"], "t": t, "s": s, "cosine": c}
        for p in panels
        for t, row in enumerate(p.cosines)
        for s, c in enumerate(row)
    ]
    return save(figure, folder, stem, drawn)


def _panels(results: Results, sweep: str, wanted: Wanted | None) -> list[Panel]:
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row["status"] == "done"]
    first = first_panel(rows)
    grams = {name: results.series(name) for name in SERIES}
    lowest_seed: dict[Method, Row] = {}
    for row in sorted(rows, key=lambda row: (row["seed"], row["cell"])):
        if panel_of(row) == first and row["cell"] in grams[SPHERE]:
            lowest_seed.setdefault(method_of(row), row)
    methods = sorted(lowest_seed)
    several = next((method for method in methods if method.groups > 1), None)
    shown = [(method, SPHERE, "") for method in methods if method.family == "diagonal" or method.groups == 1]
    if several is not None:
        shown += [(several, GROUP, "written inside one group"), (several, SPHERE, "written across the groups")]
    return [
        Panel(method, lowest_seed[method], write or "written anywhere", _square(grams[name][lowest_seed[method]["cell"]][1]))
        for method, name, write in shown
        if lowest_seed[method]["cell"] in grams[name]
    ]


def _square(values: list[float]) -> list[list[float]]:
    size = math.isqrt(len(values))
    return [values[row * size : (row + 1) * size] for row in range(size)]
