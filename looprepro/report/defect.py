"""The Toeplitz defect over T on a logarithmic axis: probes on the whole sphere and inside one group, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted, distinct, first_panel, method_of, of_sweep, panel_of
from looprepro.analysis.statistics import summarise
from looprepro.report.figure import GREY, MARKERS, method_colours, new_figure, nothing_to_draw, save, seeds_text

PROBES = {
    "defect_sphere": "probes on the whole sphere",
    "defect_blockwise": "probes inside one group\n(diagonal: one block of all)",
}
PRECISION = 1e-10
"""Below this a defect counts as rounding (C20a to C20d)."""
FLOOR = 1e-17
"""Where an exact zero is drawn."""


def defect(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None) -> list[Path]:
    """Every seed as a dot, the mean as a line, on the sweep's first task or size."""
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row.get("metric") in PROBES and row["status"] == "done"]
    panel = first_panel(rows)
    rows = [row for row in rows if panel_of(row) == panel]
    if not rows:
        raise nothing_to_draw(results, sweep, "Toeplitz defect")
    methods = sorted({method_of(row) for row in rows})
    colours = method_colours(methods)
    budgets = sorted({row["T"] for row in rows})
    figure, axes = new_figure(len(PROBES), width=3.6, height=3.5, legend=1.9)
    handles: dict[str, Any] = {}
    drawn: list[dict[str, Any]] = []
    counts: set[int] = set()
    for axis, (metric, probes) in zip(axes, PROBES.items(), strict=True):
        for index, method in enumerate(methods):
            seeds = {
                T: distinct([r for r in rows if r["metric"] == metric and r["T"] == T and method_of(r) == method])
                for T in budgets
            }
            summaries = [(T, summarise([row["value"] for row in seeds[T]])) for T in budgets if seeds[T]]
            for T, summary in summaries:
                counts.add(summary.n)
                values = [max(FLOOR, row["value"]) for row in seeds[T]]
                axis.plot([T] * len(values), values, ".", color=colours[method], markersize=3, alpha=0.4)
            line = "--" if method.family == "diagonal" else "-"
            means = [max(FLOOR, summary.mean or 0.0) for _, summary in summaries]
            shown = axis.plot(
                [T for T, _ in summaries],
                means,
                line,
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                color=colours[method],
            )
            handles.setdefault(method.label, shown[0])
            about = {"panel": panel, "method": method.label, "probes": metric.removeprefix("defect_")}
            drawn += [about | {"T": T, "mean": s.mean, "se": s.se, "n": s.n} for T, s in summaries]
        axis.axhline(PRECISION, color=GREY, linestyle=":", linewidth=0.8)
        axis.text(budgets[0], PRECISION * 1.5, "rounding below this line", size=7, color=GREY)
        axis.set_yscale("log")
        axis.set_ylim(FLOOR / 3, 1.5)
        axis.set_xticks(budgets)
        axis.set(xlabel="recurrent steps T", ylabel="Toeplitz defect" if axis is axes[0] else "", title=probes)
    figure.legend(list(handles.values()), list(handles), loc="outside right center")
    where = dict.fromkeys(part for part in (sweep, panel, f"width {rows[0]['width']}") if part)
    figure.suptitle(
        f"Toeplitz defect of the trained operators, mean over seeds (dots: single seeds)\n"
        f"{', '.join(where)}, scale {results.scale}, {seeds_text(counts)}"
    )
    return save(figure, folder, stem, drawn)
