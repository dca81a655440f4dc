"""From a sweep's expansion to the table that it asks for: wanted cells, layout, and how the paper's column is labelled."""

from __future__ import annotations

from looprepro.analysis.table import TablePlan, WantedCell, WantedEvaluation
from looprepro.planning import Expansion, Sweep, expand


def table_plan(expansion: Expansion) -> TablePlan:
    """What :func:`looprepro.analysis.fill.build_table` needs of ``expansion``.

    Budgets that the layout does not place become the innermost columns: numbers at different T never share an entry.
    """
    sweep, layout = expansion.sweep, expansion.layout
    wanted = tuple(
        WantedCell(
            planned.id,
            planned.cell.seed,
            place.axes,
            place.labels,
            tuple(WantedEvaluation(e.id, e.role, e.evaluation.T) for e in place.evaluations),
        )
        for planned in expansion.cells
        for place in planned.placements
    )
    columns = layout.columns
    if "T" not in (*layout.rows, *columns):
        columns = (*columns, "T")
    width, budgets, rows = _paper_setting(sweep)
    ours = {place.axes[layout.rows[0]]: place.labels.get(layout.rows[0]) for c in expansion.cells for place in c.placements}
    return TablePlan(
        name=sweep.name,
        title=sweep.title_at(expansion.scale),
        place=sweep.place,
        scale=expansion.scale,
        rows=layout.rows,
        columns=columns,
        metric=layout.metric,
        decimals=layout.decimals,
        wanted=wanted,
        order=expansion.axes,
        overrides=expansion.overrides,
        note=sweep.scale(expansion.scale).note,
        beside=layout.beside,
        paper_width=width,
        paper_budgets=budgets,
        paper_rows={} if width else {role: label for role, label in rows.items() if ours.get(role, label) != label},
    )


def _paper_setting(sweep: Sweep) -> tuple[int | None, dict[str, int], dict[str, str]]:
    """Width of the state, role -> T, and role -> label of the rows at scale paper: what its numbers were measured at."""
    if "paper" not in sweep.scales:
        return None, {}, {}
    cells = expand(sweep, "paper", seeds="0").cells
    widths = {planned.cell.model.width for planned in cells}
    budgets: dict[str, set[int]] = {}
    for planned in cells:
        for e in planned.evaluations:
            budgets.setdefault(e.role, set()).add(e.evaluation.T)
    axis = sweep.layout.rows[0]
    rows = {place.axes[axis]: place.labels[axis] for planned in cells for place in planned.placements if axis in place.labels}
    fixed = {role: T.pop() for role, T in budgets.items() if len(T) == 1}
    return (widths.pop() if len(widths) == 1 else None), fixed, rows
