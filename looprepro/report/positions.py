"""Accuracy by position of the word: one panel per method, one line per budget T (C30: early prefixes are right first)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted, distinct, first_panel, method_of, of_sweep, panel_of
from looprepro.analysis.statistics import summarise
from looprepro.report.figure import OKABE_ITO, new_figure, nothing_to_draw, save, seeds_text

LINES = ("-", "--", "-.", ":")


def positions(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None) -> list[Path]:
    """Mean over distinct seeds with a band of one standard error, on the sweep's first task or size."""
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row["status"] == "done" and row.get("T") is not None]
    panel = first_panel(rows)
    rows = [row for row in rows if panel_of(row) == panel]
    budgets = sorted({row["T"] for row in rows})
    curves = {T: results.series(f"position_accuracy@T={T}") for T in budgets}
    methods = sorted({method_of(row) for row in rows if row["cell"] in curves[row["T"]]})
    if not methods:
        raise nothing_to_draw(results, sweep, "accuracy by position of a finished cell")
    columns = min(5, len(methods))
    figure, axes = new_figure(columns, math.ceil(len(methods) / columns), width=2.5, height=3.1)
    drawn: list[dict[str, Any]] = []
    counts: set[int] = set()
    handles: dict[str, Any] = {}
    roles = {row["T"]: row.get("role_T", "") for row in rows}
    for index, (axis, method) in enumerate(zip(axes, methods, strict=False)):
        for number, T in enumerate(budgets):
            runs = distinct([r for r in rows if r["T"] == T and method_of(r) == method and r["cell"] in curves[T]])
            if not runs:
                continue
            x = curves[T][runs[0]["cell"]][0]
            points = [summarise([curves[T][row["cell"]][1][i] for row in runs]) for i in range(len(x))]
            means = [point.mean or 0.0 for point in points]
            errors = [point.se or 0.0 for point in points]
            colour = OKABE_ITO[number % len(OKABE_ITO)]
            (line,) = axis.plot(x, means, LINES[number % len(LINES)], color=colour)
            role = roles[T].replace("T_max", "$T_{max}$")
            handles.setdefault(f"T = {T} ({role})" if role else f"T = {T}", line)
            if len(runs) > 1:
                low = [m - e for m, e in zip(means, errors, strict=True)]
                high = [m + e for m, e in zip(means, errors, strict=True)]
                axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            counts.add(len(runs))
            about = {"panel": panel, "method": method.label, "T": T}
            drawn += [
                about | {"position": place, "mean": p.mean, "se": p.se, "n": p.n} for place, p in zip(x, points, strict=True)
            ]
        axis.set_title(method.label)
        axis.set(ylim=(0, 1.02), xlim=(1, None))
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_xlabel("position in the word" if index + columns >= len(methods) else "")
        axis.set_ylabel("accuracy" if index % columns == 0 else "")
    for axis in axes[len(methods) :]:
        axis.set_visible(False)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=len(handles))
    error = ", mean ± standard error" if max(counts) > 1 else ""
    where = ", ".join(part for part in (sweep, panel) if part)
    figure.suptitle(f"Accuracy by position{error}\n{where}, scale {results.scale}, {seeds_text(counts)}")
    return save(figure, folder, stem, drawn)
