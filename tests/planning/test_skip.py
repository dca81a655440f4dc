"""Combinations that a table leaves out, and a title of a scale's own."""

from __future__ import annotations

import pytest

from looprepro.analysis.fill import build_table
from looprepro.analysis.table_plan import table_plan
from looprepro.config.presence import Presence
from looprepro.files.errors import ConfigError
from looprepro.planning import expand, load_sweep, merge, plan
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
    assert [cell.strip() for cell in line.strip("|").split("|")[1:]] == [*["— (0/2 run)"] * 3, *["—"] * 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("{groop: [S5]}", "no axis 'groop'.*'group'"), ("{group: [S6]}", "no point 'S6'.*'S5'|no point 'S6'.*'A5'")],
)
def test_a_misspelt_axis_or_role_names_the_nearest(write, wrong: str, message: str) -> None:
    path = write(("evaluations: {budgets: [T_max/2", f"skip: [{wrong}]\nevaluations: {{budgets: [T_max/2"))
    with pytest.raises(ConfigError, match=message):
        load_sweep(path)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[{group: S5, method: [G=2]}]", "small.yaml:23: 'skip.0.group' is S5, and a list is needed. Write group: [S5]"),
        ("S5", "small.yaml:23: 'skip' is S5, and a list is needed. Write skip: [S5]"),
        ("{group: [S5]}", "small.yaml:23: 'skip' is no list. Write one entry a line, each behind a dash, or [first, second]"),
    ],
)
def test_where_a_list_is_needed_the_error_says_how_to_write_it(write, written: str, message: str) -> None:
    path = write(("evaluations: {budgets: [T_max/2", f"skip: {written}\nevaluations: {{budgets: [T_max/2"))
    with pytest.raises(ConfigError) as caught:
        load_sweep(path)
    assert str(caught.value).endswith(message)


def test_a_scale_may_have_its_own_title(write) -> None:
    sweep = load_sweep(write(("note: shows a little", "note: shows a little\n    title: Smaller")))
    assert table_plan(expand(sweep, "mini")).title == "Smaller"
    assert table_plan(expand(sweep, "smoke")).title == "A small sweep"


def test_a_scale_may_leave_seeds_out_unless_seeds_are_asked_for(write) -> None:
    sweep = load_sweep(write(("note: shows a little", "note: shows a little\n    skip: [{group: [S5], seed: ['3', '5']}]")))
    found = expand(sweep, "mini")
    assert [(c.placements[0].axes["group"], c.cell.seed) for c in found.cells] == [
        *[("A5", 0), ("A5", 3), ("A5", 5)] * 2,
        *[("S5", 0)] * 2,
    ]
    assert found.entries == 8
    assert len(expand(sweep, "mini", seeds="0,3,5").cells) == 12
    assert len(expand(sweep, "smoke").cells) == 12
    with pytest.raises(ConfigError, match="no point '4'"):
        load_sweep(write(("note: shows a little", "note: shows a little\n    skip: [{group: [S5], seed: ['4']}]")))


def test_a_sweep_that_trains_nothing_names_what_is_not_trained(write) -> None:
    expansion = expand(load_sweep(write(("kind: table", "kind: table\ntrains: false"))), "smoke")
    first, second, third = (cell.id for cell in expansion.cells[:3])
    known = {
        first: Presence("done", has_weights=True),
        second: Presence("done"),
        third: Presence("lost", attempts=1, step=40),
    }
    made = plan(expansion.cells, known, retrain=True)
    assert [item.action for item in made.items[:3]] == ["evaluate", "none", "none"]
    assert made.items[1].state == "needs retraining"
    assert made.counts["untrained"] == len(made.untrained) == 10
    assert made.items[2].reason == "not trained (lost), and nothing here trains it"
    assert not made.complete
    other = expand(load_sweep(write(name="other")), "smoke")
    assert all(item.action == "train" for item in plan(merge([expansion, other]), {}).items)
