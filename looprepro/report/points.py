"""A metric of a sweep over an axis of numbers (Figure 2a: effective layers), or over another metric (Figure 5: a front)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted, distinct, of_sweep
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import Summary, summarise
from looprepro.report.figure import MARKERS, OKABE_ITO, in_order, new_figure, nothing_to_draw, save, seeds_text, stand_in, words

Y_LABELS = {"max_length": "longest word above 90% (letters)"}
"""Metrics whose name does not say what is counted."""


def points(
    results: Results,
    folder: Path,
    stem: str,
    sweep: str,
    wanted: Wanted | None,
    metric: str,
    lines_by: str,
    over: str,
) -> list[Path]:
    """Mean ± SE of ``metric`` with a line per role on the axis ``lines_by``.

    ``over``: an axis whose roles are numbers, or the name of a metric whose mean is then x (and the other axes make the
    points of a line).
    """
    rows = [row for row in of_sweep(results.rows, sweep, wanted) if row["status"] == "done" and "value" in row]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        axes = sorted((name, value) for name, value in row.items() if name.startswith("axis_"))
        groups.setdefault((row[f"label_{lines_by}"], *(f"{n}={v}" for n, v in axes), row["role_T"]), []).append(row)
    found: dict[str, list[tuple[float, Summary]]] = {}
    for (line, *_), members in groups.items():
        y = _sample(members, metric)
        x = _sample(members, over).mean if f"axis_{over}" not in members[0] else float(members[0][f"axis_{over}"])
        if y.mean is not None and x is not None:
            found.setdefault(line, []).append((x, y))
    if not found:
        raise nothing_to_draw(results, sweep, f"number of {metric} over {over}")
    figure, (axis,) = new_figure(1, width=4.6, height=3.4, legend=1.6)
    drawn: list[dict[str, Any]] = []
    roles = {row[f"label_{lines_by}"]: row[f"axis_{lines_by}"] for row in rows if row[f"label_{lines_by}"] in found}
    for index, line in enumerate(in_order(sweep, lines_by, roles)):
        at = found[line]
        at.sort(key=lambda pair: pair[0])
        axis.errorbar(
            [x for x, _ in at],
            [y.mean or 0.0 for _, y in at],
            yerr=[y.se or 0.0 for _, y in at],
            color=OKABE_ITO[index % len(OKABE_ITO)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=4.5,
            capsize=2,
            elinewidth=1.0,
            label=line,
        )
        drawn += [{"line": line, over: x, "metric": metric, "mean": y.mean, "se": y.se, "n": y.n} for x, y in at]
    of_axis = f"axis_{over}" in rows[0]
    x_label = f"effective {over}" if of_axis else words(over)
    axis.set(xlabel=x_label, ylabel=Y_LABELS.get(metric, words(metric)))
    if of_axis:  # exactly what was run: depths that multiply from one to the next
        run = sorted({x for at in found.values() for x, _ in at})
        axis.set_xscale("log")
        axis.set_xticks(run, [f"{x:g}" for x in run])
        axis.minorticks_off()
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.legend(loc="outside right center")
    counts = {row["n"] for row in drawn}
    error = ", mean ± standard error" if max(counts) > 1 else ""
    about = [f"{words(metric).capitalize()} over {x_label}{error}", f"{sweep}, scale {results.scale}, {seeds_text(counts)}"]
    figure.suptitle("\n".join(filter(None, (*about, stand_in(sweep, results.scale)))))
    return save(figure, folder, stem, drawn)


def _sample(rows: list[Row], metric: str) -> Summary:
    return summarise([row["value"] for row in distinct([row for row in rows if row["metric"] == metric])])
