"""Training loss over steps: one panel per task, size or gradient, one line per method, the curriculum's boundaries visible."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from looprepro.analysis.results import Points, Results
from looprepro.analysis.samples import Wanted, distinct, method_of, of_sweep, panel_of, panel_order
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import mean, summarise
from looprepro.config.curriculum import Curriculum
from looprepro.report.figure import GREY, method_colours, new_figure, nothing_to_draw, save, seeds_text

POINTS = 150
"""Points of a drawn curve at most: single logged losses are too noisy to tell methods apart."""


def curves(results: Results, folder: Path, stem: str, sweep: str, wanted: Wanted | None) -> list[Path]:
    """Mean over finished seeds with a band of one standard error; diverged seeds are counted in the legend."""
    losses = results.series("loss")
    rows = list({row["cell"]: row for row in of_sweep(results.rows, sweep, wanted)}.values())
    panels = sorted(
        {panel_of(row) for row in rows if row["status"] == "done" and row["cell"] in losses},
        key=panel_order,
    )
    if not panels:
        raise nothing_to_draw(results, sweep, "loss curve of a finished cell")
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(len(panels), width=4.2, height=3.4, legend=1.9)
    methods = sorted({method_of(row) for row in rows})
    colours = method_colours(methods)
    handles: dict[str, Any] = {}
    drawn: list[dict[str, Any]] = []
    for axis, panel in zip(axes, panels, strict=True):
        mine = [row for row in rows if panel_of(row) == panel]
        counts, diverged = [], []
        for method in methods:
            runs = [row for row in mine if method_of(row) == method]
            seeds = distinct([row for row in runs if row["status"] == "done" and row["cell"] in losses])
            lost = len({row["seed"] for row in runs if row["status"] == "diverged"})
            if lost:
                diverged.append(f"{method.label}: {lost} diverged, not drawn")
            if not seeds:
                continue
            counts.append(len(seeds))
            steps, means, errors = _mean_curve([losses[row["cell"]] for row in seeds])
            line = "--" if method.family == "diagonal" else "-"
            handles.setdefault(method.label, axis.plot(steps, means, line, color=colours[method])[0])
            if len(seeds) > 1:
                low = [m - (e or 0.0) for m, e in zip(means, errors, strict=True)]
                high = [m + (e or 0.0) for m, e in zip(means, errors, strict=True)]
                axis.fill_between(steps, low, high, color=colours[method], alpha=0.2, linewidth=0)
            about = {"panel": panel, "method": method.label, "n": len(seeds), "diverged": lost}
            drawn += [
                about | {"step": step, "mean_loss": loss, "se": error}
                for step, loss, error in zip(steps, means, errors, strict=True)
            ]
        _curriculum(axis, mine[0])
        axis.set_title("\n".join([", ".join(part for part in (panel, seeds_text(counts)) if part), *diverged]))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set(xlabel="optimiser step", ylabel="training loss (nats per token)", xlim=(0, None), ylim=(0, None))
    figure.legend(list(handles.values()), list(handles), loc="outside right center")
    lengths = "; grey: word length" if any(row.get("curriculum") == "doubling" for row in rows) else ""
    figure.suptitle(f"Training loss, mean over seeds ± standard error\n{sweep}, scale {results.scale}{lengths}")
    return save(figure, folder, stem, drawn)


def _mean_curve(runs: list[Points]) -> tuple[list[float], list[float], list[float | None]]:
    """Mean and SE over runs at every step that all runs logged: a mean over changing seeds would show steps no run took.

    Where more than :data:`POINTS` steps were logged, neighbouring ones are averaged within each run first.
    """
    tables = [dict(zip(*run, strict=True)) for run in runs]
    steps = sorted(set.intersection(*(set(table) for table in tables)))
    block = math.ceil(len(steps) / POINTS)
    blocks = [steps[start : start + block] for start in range(0, len(steps), block)]
    summaries = [summarise([mean([table[step] for step in chosen]) for table in tables]) for chosen in blocks]
    centres = [mean(chosen) for chosen in blocks]
    return centres, [summary.mean or 0.0 for summary in summaries], [summary.se for summary in summaries]


def _curriculum(axis: Any, row: Row) -> None:
    """Dotted lines where the word length doubles, and the length at the top of each slice."""
    if row.get("curriculum") != "doubling" or "steps" not in row:
        return
    lengths = Curriculum.doubling(row["length"], row["steps"]).lengths
    slice_steps = row["steps"] / len(lengths)
    top = axis.get_xaxis_transform()
    for index, length in enumerate(lengths):
        if index:
            axis.axvline(index * slice_steps, color=GREY, linestyle=":", linewidth=0.8)
        axis.text((index + 0.5) * slice_steps, 1.0, str(length), transform=top, ha="center", va="top", color=GREY, size=7)
