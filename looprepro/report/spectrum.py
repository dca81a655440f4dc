"""Figure 3: eigenvalues of the recurrent operator in the unit disk, one panel per row from diagonal to G = d/2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from looprepro.analysis.results import Points, Results
from looprepro.analysis.samples import Method, Wanted, first_panel, method_of, of_sweep, panel_of
from looprepro.analysis.schema import Row
from looprepro.report.figure import GREY, OKABE_ITO, new_figure, nothing_to_draw, save


@dataclass(frozen=True)
class Panel:
    """One operator's eigenvalues."""

    method: Method
    row: Row
    trained: bool
    points: Points


def spectrum(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None) -> list[Path]:
    """Draw the lowest seed of every row of ``sweep`` on its first task or size; initial values where no trained ones exist."""
    panels = _panels(results, sweep, wanted)
    if not panels:
        raise nothing_to_draw(results, sweep, "spectrum of a collected cell")
    columns = min(5, len(panels))
    figure, axes = new_figure(columns, math.ceil(len(panels) / columns), width=2.1, height=2.9, square=True)
    angle = [2 * math.pi * i / 360 for i in range(361)]
    for index, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
        axis.plot([math.cos(a) for a in angle], [math.sin(a) for a in angle], color=GREY, linewidth=0.8)
        axis.axhline(0, color=GREY, linewidth=0.4)
        axis.axvline(0, color=GREY, linewidth=0.4)
        colour = OKABE_ITO[0] if panel.trained else OKABE_ITO[1]
        axis.plot(*panel.points, "o", markersize=3, markeredgewidth=0, alpha=0.6, color=colour)
        axis.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")
        state = "trained" if panel.trained else "initial values"
        axis.set_title(f"{panel.method.label}\nseed {panel.row['seed']}, {state}")
        axis.set_xlabel("real part" if index + columns >= len(panels) else "")
        axis.set_ylabel("imaginary part" if index % columns == 0 else "")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    first = panels[0].row
    where = "".join(f", {text}" for text in (panel_of(first),) if text)
    figure.suptitle(f"Eigenvalues of A and the unit circle\n{sweep}{where}, width {first['width']}, scale {results.scale}")
    drawn = [
        {"method": p.method.label, "cell": p.row["cell"], "seed": p.row["seed"], "trained": p.trained, "re": x, "im": y}
        for p in panels
        for x, y in zip(*p.points, strict=True)
    ]
    return save(figure, folder, stem, drawn)


def _panels(results: Results, sweep: str, wanted: Wanted | None) -> list[Panel]:
    rows = of_sweep(results.rows, sweep, wanted)
    first = first_panel(rows)
    trained, initial = results.series("spectrum"), results.series("spectrum@0")
    best: dict[Method, Panel] = {}
    for row in sorted(rows, key=lambda row: (row["seed"], row["cell"])):
        cell = row["cell"]
        if panel_of(row) != first or (cell not in trained and cell not in initial):
            continue
        method = method_of(row)
        is_trained = cell in trained and row["status"] == "done"
        points = trained[cell] if is_trained else initial.get(cell)
        if points is not None and (method not in best or (is_trained and not best[method].trained)):
            best[method] = Panel(method, row, is_trained, points)
    return [best[method] for method in sorted(best)]
