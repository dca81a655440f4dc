"""Filling a table: which runs enter a mean, what is counted beside it, where the paper's number stands."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from looprepro.analysis.fill import build_table
from looprepro.analysis.references import Reference, References
from looprepro.analysis.table import Entry, TablePlan, WantedCell, WantedEvaluation
from looprepro.files.errors import ConfigError
from looprepro.report.numbers import sample

T_ROLE = "T_max"


def plan(seeds: int = 5, scale: str = "mini", **changes: Any) -> TablePlan:
    """One row, one column."""
    wanted = tuple(
        WantedCell(f"c{seed}", seed, {"method": "G=2"}, {"method": "conformal"}, (WantedEvaluation("e", T_ROLE, 16),))
        for seed in range(seeds)
    )
    made = TablePlan("table1", "t", "Table 1", scale, ("method",), ("T",), "accuracy", 3, wanted)
    return dataclasses.replace(made, **changes)


def row(cell: str, value: float | None, *, items: int = 100, status: str = "done", scale: str = "mini", **more: Any) -> dict:
    made = {"sweep": "table1", "scale": scale, "overrides": "", "cell": cell, "evaluation": "e", "status": status, **more}
    return made if value is None else made | {"metric": "accuracy", "value": value, "items": items}


def only(plan: TablePlan, rows: list[dict], *arguments: Any, **flags: Any) -> Entry:
    return build_table(plan, rows, *arguments, **flags).entries[0][0]


STATED = References([({"method": "G=2", "T": T_ROLE}, Reference(0.894, "section 5.1"))])
FOUR_AND_A_DIVERGED = [row(f"c{i}", 0.5 + i / 10) for i in range(4)] + [row("c4", None, status="diverged")]


def test_a_diverged_seed_is_counted_and_not_averaged() -> None:
    entry = only(plan(), FOUR_AND_A_DIVERGED)
    assert entry.mean == pytest.approx((0.5 + 0.6 + 0.7 + 0.8) / 4)
    assert sample(entry, None) == "n=4/5, 1 diverged"
    assert not entry.complete


def test_a_number_of_a_diverged_run_stays_out_of_the_mean() -> None:
    rows = [*FOUR_AND_A_DIVERGED[:4], row("c4", 0.0, status="diverged")]
    assert only(plan(), rows).mean == pytest.approx(0.65)


def test_dropping_diverged_seeds_needs_a_flag_and_is_recorded() -> None:
    table = build_table(plan(), FOUR_AND_A_DIVERGED, drop_diverged=True)
    assert table.complete
    assert table.drop_diverged
    assert any("drop_diverged" in note for note in table.notes)
    assert sample(table.entries[0][0], table.common_n) == "n=4, 1 diverged, dropped"


def test_one_seed_has_no_standard_error() -> None:
    table = build_table(plan(1), [row("c0", 0.5)])
    assert table.entries[0][0].se is None
    assert table.notes[0] == "One seed per entry: no standard error exists."


def test_an_empty_entry_says_what_is_missing() -> None:
    entry = only(plan(2), [])
    assert (entry.mean, entry.missing, sample(entry, None)) == (None, 2, "0/2 run")


def test_failed_lost_and_absent_cells_are_told_apart() -> None:
    entry = only(plan(3), [row("c0", None, status="failed"), row("c1", None, status="lost")])
    assert (entry.failed, entry.missing) == (1, 2)


def test_a_run_that_repeats_another_bit_for_bit_counts_once_with_a_warning() -> None:
    table = build_table(plan(3), [row(f"c{i}", 0.5, loss_digest=d) for i, d in enumerate(("x", "y", "x"))])
    entry = table.entries[0][0]
    assert (entry.n, entry.repeated, sample(entry, None)) == (2, 1, "n=2/3, 1 repeated")
    assert "c2 repeats the loss curve of c0 bit for bit: the two count once." in table.notes


def test_one_seed_in_two_cells_counts_once_with_a_warning() -> None:
    twice = plan(2)
    again = dataclasses.replace(twice.wanted[0], id="other")
    table = build_table(dataclasses.replace(twice, wanted=(*twice.wanted, again)), [row("c0", 0.5), row("other", 0.9)])
    assert (table.entries[0][0].n, table.entries[0][0].mean) == (1, 0.5)
    assert any("seed 0 fall on one entry" in note for note in table.notes)


def test_the_same_cell_collected_under_two_sweeps_counts_once() -> None:
    entry = only(plan(2), [row("c0", 0.5), row("c0", 0.5) | {"sweep": "table2"}, row("c1", 0.7)])
    assert (entry.n, entry.mean) == (2, pytest.approx(0.6))


def test_rows_of_another_configuration_or_scale_stay_out_and_are_mentioned() -> None:
    table = build_table(plan(1), [row("c0", 0.5), row("older", 0.9), row("c0", 0.1, scale="smoke")])
    assert table.entries[0][0].mean == 0.5
    assert any("1 more collected cells" in note for note in table.notes)


def test_mixed_devices_and_a_modified_tree_are_said() -> None:
    table = build_table(plan(2), [row("c0", 0.5, device="cpu", dirty=True), row("c1", 0.5, device="H100")])
    assert any("different devices: H100, cpu" in note for note in table.notes)
    assert any("modified working tree" in note for note in table.notes)


def test_the_papers_number_has_its_own_labelled_column_and_no_difference_at_another_scale() -> None:
    made = plan(1, paper_width=512, paper_budgets={T_ROLE: 32})
    table = build_table(made, [row("c0", 0.5)], STATED)
    assert table.columns[0].paper == "paper, width 512, T = 32"
    assert table.entries[0][0].reference == Reference(0.894, "section 5.1")
    assert table.entries[0][0].comparison is None
    with pytest.raises(ConfigError, match="not the paper's protocol"):
        build_table(made, [], STATED, compare=True)
    with pytest.raises(ConfigError, match="with overrides is not the paper's protocol"):
        build_table(plan(1, "paper", overrides=("training.lr=1",)), [], STATED, compare=True)


def test_at_scale_paper_the_difference_and_the_interval_are_judged_on_request() -> None:
    rows = [row(f"c{i}", v, scale="paper") for i, v in enumerate((0.88, 0.90, 0.92))]
    comparison = only(plan(3, "paper"), rows, STATED, compare=True).comparison
    assert comparison is not None
    assert comparison.difference == pytest.approx(0.006)
    assert comparison.inside is True  # 0.900 ± 4.303 * 0.02 / sqrt(3) = [0.850, 0.950]
    one = only(plan(1, "paper"), rows[:1], STATED, compare=True).comparison
    assert one is not None
    assert one.inside is None


def test_columns_nest_and_keep_the_order_of_the_sweep() -> None:
    wanted = [
        WantedCell(
            f"{group}{row}",
            0,
            {"group": group, "method": row},
            {},
            tuple(WantedEvaluation("e", role, T) for role, T in (("T_max/2", 8), ("T_max", 16))),
        )
        for row in ("diagonal", "G=2")
        for group in ("S5", "A5")
    ]
    table = build_table(plan(wanted=tuple(wanted), columns=("group", "T")), [])
    assert [column.labels for column in table.columns] == [("S5", "T = 8"), ("S5", "T = 16"), ("A5", "T = 8"), ("A5", "T = 16")]
    assert [head.roles for head in table.rows] == [("diagonal",), ("G=2",)]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=5), st.integers(1, 1000))
def test_more_evaluation_items_never_shrink_the_standard_error(values: list[float], factor: int) -> None:
    few, many = (
        only(plan(len(values)), [row(f"c{i}", value, items=items) for i, value in enumerate(values)])
        for items in (10, 10 * factor)
    )
    assert few.se is not None
    assert many.se == few.se
