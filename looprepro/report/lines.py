"""Any series of a sweep's cells as lines: mean over seeds, one line per row of the table, one panel per column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from looprepro.analysis.results import Points, Results
from looprepro.analysis.rows import LOGGED, series_name
from looprepro.analysis.samples import Wanted, distinct, of_sweep
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import Summary, summarise
from looprepro.report.figure import MARKERS, OKABE_ITO, in_order, new_figure, nothing_to_draw, save, seeds_text, stand_in, words

X_LABELS = {
    "by_layers": "effective layers",
    "by_difficulty": "difficulty (empty cells, path, letters)",
    "activation_norm": "layer",
    "prefix_accuracy": "letters",
}
"""What x is, by a part of the series' name; optimiser steps where none fits."""
LOGARITHMIC = 100.0
"""A series whose largest value is so many times its smallest is drawn on a logarithmic axis."""
MARKED = 12
"""Lines of at most so many points carry markers."""
DOTTED = "activation_norm"
"""Drawn as dots: the layers of an iteration differ more than iterations do, and lines between them would cover each other."""


def lines(
    results: Results,
    folder: Path,
    stem: str,
    sweep: str,
    wanted: Wanted | None,
    series: str,
    rows_by: str,
    panels_by: tuple[str, ...],
) -> list[Path]:
    """``series`` over its x; a line per role on the axis ``rows_by`` and a panel per combination of roles on ``panels_by``.

    At each x the mean ± SE over the distinct seeds that have a point there: a run whose activations became infinite ends early.
    """
    from matplotlib.ticker import MaxNLocator

    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row["status"] == "done"]
    panels: dict[tuple[str, ...], dict[str, list[Points]]] = {}
    roles: dict[str, dict[str, str]] = {by: {} for by in (rows_by, *panels_by)}
    for row, points in _with_points(results, rows, series):
        labels = {by: str(row.get(f"label_{by}") or row[f"axis_{by}"]) for by in roles}
        for by, label in labels.items():
            roles[by][label] = row[f"axis_{by}"]
        panel = tuple(labels[by] for by in panels_by)
        panels.setdefault(panel, {}).setdefault(labels[rows_by], []).append(points)
    if not panels:
        raise nothing_to_draw(results, sweep, f"series {series}")
    names, *orders = (in_order(sweep, by, found) for by, found in roles.items())
    panels = dict(
        sorted(panels.items(), key=lambda item: [order.index(label) for order, label in zip(orders, item[0], strict=True)])
    )
    figure, axes = new_figure(min(len(panels), 3), -(-len(panels) // 3), width=3.6, height=3.2, legend=1.8)
    drawn: list[dict[str, Any]] = []
    handles: dict[str, Any] = {}
    x_label = next((text for part, text in X_LABELS.items() if part in series), "optimiser step")
    for axis, (panel, found) in zip(axes, panels.items(), strict=False):
        for index, name, runs in ((names.index(name), name, found[name]) for name in names if name in found):
            at = [(x, summary) for x, summary in _summaries(runs) if summary.mean is not None]
            xs, means = [x for x, _ in at], [summary.mean or 0.0 for _, summary in at]
            dotted, again = series == DOTTED, index >= len(OKABE_ITO)
            (line,) = axis.plot(
                xs,
                means,
                color=OKABE_ITO[index % len(OKABE_ITO)],
                linestyle="none" if dotted else "--" if again else "-",
                marker=MARKERS[index % len(MARKERS)] if dotted or len(xs) <= MARKED else None,
                markersize=3 if dotted else 4,
                fillstyle="none" if dotted and again else "full",
            )
            handles.setdefault(name, line)
            low = [(s.mean or 0.0) - (s.se or 0.0) for _, s in at]
            high = [(s.mean or 0.0) + (s.se or 0.0) for _, s in at]
            if dotted:
                axis.vlines(xs, low, high, color=line.get_color(), alpha=0.3)
            else:
                axis.fill_between(xs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
            here = {"panel": ", ".join(panel), "line": name, "series": series}
            drawn += [here | {"x": x, "mean": s.mean, "se": s.se, "n": s.n} for x, s in at]
        values = [abs(row["mean"]) for row in drawn if row["panel"] == ", ".join(panel) and row["mean"]]
        if values and min(values) > 0 and max(values) > LOGARITHMIC * min(values):
            axis.set_yscale("log")
        axis.set(xlabel=x_label, ylabel=words(series))
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=all(row["x"] == int(row["x"]) for row in drawn)))
        axis.set_title(
            ", ".join(f"{by} = {text}" if text.isdecimal() else text for by, text in zip(panels_by, panel, strict=True))
        )
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    shown = [name for name in names if name in handles]
    figure.legend([handles[name] for name in shown], shown, loc="outside right center")
    counts = {row["n"] for row in drawn}
    error = ", mean ± standard error" if max(counts) > 1 else ""
    over = f" over {x_label.split(' (')[0]}" if "_by_" in series else ""
    about = [f"{words(series).capitalize()}{over}{error}", f"{sweep}, scale {results.scale}, {seeds_text(counts)}"]
    figure.suptitle("\n".join(filter(None, (*about, stand_in(sweep, results.scale)))))
    return save(figure, folder, stem, drawn)


def _with_points(results: Results, rows: list[Row], series: str) -> list[tuple[Row, Points]]:
    """One row per cell and place in the sweep that has the series, with its points.

    Of several budgets the largest counts: a shorter solve is the beginning of a longer one, not another seed.
    """
    found: dict[str, dict[str, Points]] = {}
    chosen: dict[tuple[Any, ...], tuple[Row, Points]] = {}
    places: dict[tuple[int, tuple[str, ...], str], list[Row]] = {}
    for row in rows:
        axes = tuple(sorted(f"{name}={value}" for name, value in row.items() if name.startswith("axis_")))
        measured = (0, "") if series in LOGGED else (row.get("T") or 0, row.get("evaluation", ""))
        places.setdefault((measured[0], axes, measured[1]), []).append(row)
    for (_, axes, _), members in sorted(places.items(), key=lambda place: place[0]):
        for row in distinct(members):
            name = series if series in LOGGED else series_name(row, series)
            if name not in found:
                found[name] = results.series(name)
            points = found[name].get(row["cell"])
            if points is not None and points[0]:
                chosen[(*axes, row["seed"])] = (row, points)
    return list(chosen.values())


def _summaries(runs: list[Points]) -> list[tuple[float, Summary]]:
    """Each x that some run has, with the runs' values there."""
    at: dict[float, list[float]] = {}
    for xs, ys in runs:
        for x, y in zip(xs, ys, strict=True):
            at.setdefault(x, []).append(y)
    return [(x, summarise(values)) for x, values in sorted(at.items())]
