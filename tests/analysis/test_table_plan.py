"""The project's own Table 1 as a table: layout, labels, seeds, and the paper's numbers where its text states them."""

from __future__ import annotations

import pytest

from looprepro.analysis.fill import build_table
from looprepro.analysis.references import Reference, References, load_references
from looprepro.analysis.table_plan import table_plan
from looprepro.planning import Sweep, expand, load_sweep


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return load_sweep("table1")


def test_the_smoke_table_has_its_own_budgets_and_the_papers_column_names_the_papers_setting(sweep: Sweep) -> None:
    table = build_table(table_plan(expand(sweep, "smoke")), [], load_references(sweep))
    assert [column.labels for column in table.columns] == [
        (group, budget) for group in ("A5", "S5") for budget in ("T = 2", "T = 4", "T = 6")
    ]
    assert [column.paper for column in table.columns] == [None, "paper, width 512, T = 32", None] * 2
    assert [row.labels[0] for row in table.rows][:2] == ["diagonal", "conformal, G = 1"]
    assert table.rows[-1].roles == ("d/2",)
    assert {entry.wanted for row in table.entries for entry in row} == {len(sweep.scales["smoke"].seeds)}


def test_columns_keep_the_order_of_the_sweep_where_the_first_row_leaves_one_out() -> None:
    """fprm_depth has no post-norm at 4 layers at scale mini, and post-norm is its first row."""
    depth = load_sweep("fprm_depth")
    table = build_table(table_plan(expand(depth, "mini")), [], load_references(depth))
    assert [column.roles[0] for column in table.columns] == ["4", "8", "16", "32"]


def test_where_rows_are_sizes_a_note_says_what_size_the_papers_numbers_have() -> None:
    table4 = load_sweep("table4")
    for scale, said in (
        ("smoke", ["The paper's column has rows of its own size: small is 60M, medium is 140M, large is 370M."]),
        ("paper", []),
    ):
        table = build_table(table_plan(expand(table4, scale)), [], load_references(table4))
        assert [note for note in table.notes if "own size" in note] == said


@pytest.mark.parametrize(
    ("row", "group", "value"),
    [("diagonal", "A5", 0.692), ("G=2", "A5", 0.894), ("d/2", "A5", 0.741), ("diagonal", "S5", 0.531), ("G=2", "S5", 0.808)],
)
def test_the_papers_numbers_stand_at_t_max(sweep: Sweep, row: str, group: str, value: float) -> None:
    table = build_table(table_plan(expand(sweep, "paper")), [], load_references(sweep))
    i = next(i for i, head in enumerate(table.rows) if head.roles == (row,))
    j = next(j for j, head in enumerate(table.columns) if head.roles == (group, "T_max"))
    reference = table.entries[i][j].reference
    assert reference is not None
    assert reference.value == value
    assert sum(entry.reference is not None for line in table.entries for entry in line) == 5


def test_an_override_with_several_values_becomes_rows_of_its_own(sweep: Sweep) -> None:
    plan = table_plan(expand(sweep, "smoke", overrides=["training.lr=1e-3,1e-4"], only=["method=diagonal"]))
    table = build_table(plan, [])
    assert len(table.rows) == 2
    assert table.overrides != ()
    assert any(note.startswith("Overrides: training.lr") for note in table.notes)


def test_axes_that_only_one_side_names_do_not_hide_a_stated_number() -> None:
    stated = Reference(0.81, "section 5.2")
    references = References([({"method": "G=2", "group": "A5", "T": "T_max"}, stated)])
    assert references.get({"method": "G=2", "T": "T_max"}) == stated
    assert references.get({"method": "G=2", "T": "T_max", "training.lr": "0.001"}) == stated
    assert references.get({"method": "G=2", "T": "T_max/2"}) is None
    assert references.get({"method": "G=4", "group": "A5", "T": "T_max"}) is None
