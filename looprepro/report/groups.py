"""A metric over the number of groups G: one panel per task, size or gradient, a line per budget T, the baseline as a band.

The budgets differ in colour and marker; operators, where a sweep has several with groups, in the stroke and the marker's fill.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Method, Wanted, distinct, method_of, of_sweep, panel_of, panel_order
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import Summary, summarise
from looprepro.report.figure import GREY, MARKERS, OKABE_ITO, new_figure, nothing_to_draw, save, seeds_text, words

STROKES = (("-", "full"), ("-.", "none"), (":", "left"))
"""Line and marker's fill of each operator; the baseline is dashed."""


def groups(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None, metric: str) -> list[Path]:
    """Mean ± SE over distinct seeds at every G; the diagonal baseline at the same T as a dashed line with its ± SE band."""
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row.get("metric") == metric and row["status"] == "done"]
    panels = sorted({panel_of(row) for row in rows if row.get("groups")}, key=panel_order)
    if not panels:
        raise nothing_to_draw(results, sweep, f"number of {metric} over G", metric)
    points = sorted({method_of(row) for row in rows if row.get("groups")})
    lines = _lines(points)
    budgets = sorted({(row["T"], row.get("role_T", "")) for row in rows})
    figure, axes = new_figure(len(panels), width=4.2, height=3.6)
    drawn: list[dict[str, Any]] = []
    counts: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        for index, (budget, role) in enumerate(budgets):
            here = [row for row in rows if panel_of(row) == panel and row["T"] == budget]
            colour, marker = OKABE_ITO[index % len(OKABE_ITO)], MARKERS[index % len(MARKERS)]
            for method in sorted({method_of(row) for row in here if row["injection"] == "diagonal"}):
                baseline = _sample([row for row in here if method_of(row) == method])
                if baseline.mean is None:
                    continue
                counts.add(baseline.n)
                axis.axhline(baseline.mean, color=colour, linestyle="--", linewidth=1.0)
                if baseline.se is not None:
                    axis.axhspan(
                        baseline.mean - baseline.se, baseline.mean + baseline.se, color=colour, alpha=0.15, linewidth=0
                    )
                drawn.append(_line(panel, method.label, None, budget, role, metric, baseline))
            for (stroke, fill), (name, members) in zip(cycle(STROKES), lines.items(), strict=False):
                found = [(m, _sample([row for row in here if method_of(row) == m])) for m in members]
                found = [(m, summary) for m, summary in found if summary.mean is not None]
                # Neighbouring budgets are shifted a little sideways so that their error bars do not hide each other.
                shift = 1 + 0.05 * (index - (len(budgets) - 1) / 2)
                axis.errorbar(
                    [m.groups * shift for m, _ in found],
                    [summary.mean or 0.0 for _, summary in found],
                    yerr=[summary.se or 0.0 for _, summary in found],
                    color=colour,
                    linestyle=stroke,
                    marker=marker,
                    fillstyle=fill,
                    markersize=4.5,
                    capsize=2,
                    elinewidth=1.0,
                    label=_label(budget, role, name if len(lines) > 1 else ""),
                )
                drawn += [_line(panel, name, m, budget, role, metric, summary) for m, summary in found]
                counts |= {summary.n for _, summary in found}
        ticks = sorted({method.groups for method in points})
        axis.set_xscale("log", base=2)
        axis.set_xlim(ticks[0] / 1.3, ticks[-1] * 1.3)
        axis.set_xticks(ticks, [_tick(points, tick) for tick in ticks])
        axis.minorticks_off()
        axis.set(xlabel="groups G", ylabel=words(metric), title=panel)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    handles, labels = axes[0].get_legend_handles_labels()
    from matplotlib.lines import Line2D

    handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1.0))
    labels.append("diagonal at the same T" + (", band ± SE" if max(counts) > 1 else ""))
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(axes) == 1 or len(lines) > 1 else len(labels))
    error = ", mean ± standard error" if max(counts) > 1 else ""
    figure.suptitle(f"{words(metric).capitalize()} over G{error}\n{sweep}, scale {results.scale}, {seeds_text(counts)}")
    return save(figure, folder, stem, drawn)


def _sample(rows: list[Row]) -> Summary:
    return summarise([row["value"] for row in distinct(rows)])


def _lines(methods: list[Method]) -> dict[str, list[Method]]:
    """Name -> methods that a line joins: a family's over G; where two of a family have one G, each by itself."""
    lines: dict[str, list[Method]] = {}
    counts = Counter((method.family, method.groups) for method in methods)
    twice = {family for (family, _), count in counts.items() if count > 1}
    for method in methods:
        lines.setdefault(method.label if method.family in twice else method.family, []).append(method)
    return lines


def _label(budget: int, role: str, name: str) -> str:
    parts = (name, f"T = {budget}", f"({role})" if role not in ("", str(budget)) else "")
    return " ".join(part for part in parts if part)


def _tick(points: list[Method], groups: int) -> str:
    return f"{groups}\n(d/2)" if any(m.groups == groups and m.is_half for m in points) else str(groups)


def _line(
    panel: str, name: str, method: Method | None, budget: int, role: str, metric: str, summary: Summary
) -> dict[str, Any]:
    return {
        "panel": panel,
        "method": name,
        "G": method.groups if method else None,
        "T": budget,
        "role_T": role,
        "metric": metric,
        "mean": summary.mean,
        "se": summary.se,
        "n": summary.n,
    }
