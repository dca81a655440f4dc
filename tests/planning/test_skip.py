"""Combinations that a table leaves out, and a title of a scale's own."""

from __future__ import annotations

import pytest

from looprepro.analysis.fill import build_table
from looprepro.analysis.table_plan import table_plan
from looprepro.files.errors import ConfigError
from looprepro.planning import expand, load_sweep
from looprepro.report.tables import markdown


def test_a_skipped_combination_is_no_cell_and_its_entry_a_dash_that_wants_nothing(write) -> None:
    path = write(
        ("evaluations: {budgets: [T_max/2", "skip: [{group: [S5], method: [G=2, d / 2]}]\nevaluations: {budgets: [T_max/2")
    )
    expansion = expand(load_sweep(path), "smoke")
    assert [tuple(cell.placements[0].axes.values()) for cell in expansion.cells if cell.cell.seed == 0] == [
        ("A5", "diagonal"),
        ("A5", "G=2"),
        ("A5", "d/2"),
        ("S5", "diagonal"),
    ]
    assert expansion.entries == 8
    table = build_table(table_plan(expansion), [])
    left_out = {
        (row.roles[0], column.roles[0])
        for row, entries in zip(table.rows, table.entries, strict=True)
        for column, entry in zip(table.columns, entries, strict=True)
        if not entry.wanted
    }
    assert left_out == {("G=2", "S5"), ("d/2", "S5")}
    line = next(line for line in markdown(table).splitlines() if "G=2" in line)
    assert [cell.strip() for cell in line.strip("|").split("|")[1:]] == [*["— (n=0/2, 2 missing)"] * 3, *["—"] * 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("{groop: [S5]}", "no axis 'groop'.*'group'"), ("{group: [S6]}", "no point 'S6'.*'S5'|no point 'S6'.*'A5'")],
)
def test_a_misspelt_axis_or_role_names_the_nearest(write, wrong: str, message: str) -> None:
    path = write(("evaluations: {budgets: [T_max/2", f"skip: [{wrong}]\nevaluations: {{budgets: [T_max/2"))
    with pytest.raises(ConfigError, match=message):
        load_sweep(path)


def test_a_scale_may_have_its_own_title(write) -> None:
    sweep = load_sweep(write(("note: shows a little", "note: shows a little\n    title: Smaller")))
    assert table_plan(expand(sweep, "mini")).title == "Smaller"
    assert table_plan(expand(sweep, "smoke")).title == "A small sweep"
