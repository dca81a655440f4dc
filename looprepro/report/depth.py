"""A metric over the budget T: one panel per task, size or gradient, one line per method, the trained budget marked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted, distinct, method_of, of_sweep, panel_of, panel_order
from looprepro.analysis.statistics import summarise
from looprepro.report.figure import GREY, MARKERS, method_colours, new_figure, nothing_to_draw, save, seeds_text, words


def depth(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None, metric: str) -> list[Path]:
    """Mean ± SE over distinct seeds at every budget of the same checkpoints; nothing is retrained."""
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row.get("metric") == metric and row["status"] == "done"]
    if not rows:
        raise nothing_to_draw(results, sweep, f"number of {metric} over T", metric)
    panels = sorted({panel_of(row) for row in rows}, key=panel_order)
    budgets = sorted({row["T"] for row in rows})
    roles = {row["T"]: row.get("role_T", "") for row in rows}
    methods = sorted({method_of(row) for row in rows})
    colours = method_colours(methods)
    figure, axes = new_figure(len(panels), width=3.9, height=3.4, legend=1.9)
    # Methods stand a little beside each other so that their error bars do not hide each other: over a fifth of the nearest T.
    nearest = min((after - before for before, after in pairwise(budgets)), default=1)
    step = nearest / 5 / max(1, len(methods) - 1)
    handles: dict[str, Any] = {}
    drawn: list[dict[str, Any]] = []
    counts: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        mine = [row for row in rows if panel_of(row) == panel]
        trained = {row["T_max"] for row in mine if "T_max" in row}
        for budget in trained:
            axis.axvline(budget, color=GREY, linestyle=":", linewidth=0.8)
            axis.text(budget, 1.0, " trained up to here", transform=axis.get_xaxis_transform(), va="bottom", size=7, color=GREY)
        for index, method in enumerate(methods):
            samples = [
                (T, summarise([row["value"] for row in distinct([r for r in mine if r["T"] == T and method_of(r) == method])]))
                for T in budgets
            ]
            samples = [(T, summary) for T, summary in samples if summary.mean is not None]
            if not samples:
                continue
            shift = step * (index - (len(methods) - 1) / 2)
            handles.setdefault(
                method.label,
                axis.errorbar(
                    [T + shift for T, _ in samples],
                    [summary.mean or 0.0 for _, summary in samples],
                    yerr=[summary.se or 0.0 for _, summary in samples],
                    color=colours[method],
                    linestyle="--" if method.family == "diagonal" else "-",
                    marker=MARKERS[index % len(MARKERS)],
                    markersize=4,
                    capsize=2,
                    elinewidth=0.9,
                ),
            )
            counts |= {summary.n for _, summary in samples}
            about = {"panel": panel, "method": method.label, "metric": metric}
            drawn += [about | {"T": T, "role_T": roles[T], "mean": s.mean, "se": s.se, "n": s.n} for T, s in samples]
        axis.set_xticks(
            budgets,
            [f"{T}\n{roles[T].replace('T_max', '$T_{max}$')}" if roles[T] not in ("", str(T)) else str(T) for T in budgets],
        )
        axis.set(xlabel="recurrent steps T at evaluation", ylabel=words(metric))
        axis.set_title(panel, pad=14)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.legend(list(handles.values()), list(handles), loc="outside right center")
    error = ", mean ± standard error" if max(counts) > 1 else ""
    figure.suptitle(f"{words(metric).capitalize()} over T{error}\n{sweep}, scale {results.scale}, {seeds_text(counts)}")
    return save(figure, folder, stem, drawn)
