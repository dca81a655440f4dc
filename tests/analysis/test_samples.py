"""Grouping of collected rows into methods and samples."""

from __future__ import annotations

from typing import Any

from looprepro.analysis.samples import distinct, method_of, of_sweep


def row(**more: Any) -> dict[str, Any]:
    return {"sweep": "table1", "overrides": "", "cell": "c", "seed": 0, "width": 64, **more}


def test_methods_sort_as_the_tables_do_and_name_the_last_group_count_by_its_role() -> None:
    rows = [
        row(injection="conformal", chart="pairwise", groups=32),
        row(injection="conformal", chart="pairwise", groups=2),
        row(injection="conformal", chart="cayley", groups=1),
        row(injection="my.module:OwnOperator"),
        row(injection="grouped_diagonal", groups=4),
        row(injection="diagonal"),
    ]
    assert [method.label for method in sorted(map(method_of, rows))] == [
        "diagonal",
        "grouped diagonal, G = 4",
        "conformal, G = 2",
        "conformal, G = 32 (d/2)",
        "conformal cayley, G = 1",
        "OwnOperator",
    ]


def test_one_row_counts_per_seed_and_per_loss_curve() -> None:
    rows = [
        row(cell="a", seed=0, loss_digest="x"),
        row(cell="b", seed=0, loss_digest="y"),
        row(cell="c", seed=1, loss_digest="x"),
        row(cell="d", seed=2),
    ]
    assert [r["cell"] for r in distinct(rows)] == ["a", "d"]


def test_rows_with_overrides_or_of_other_cells_stay_out() -> None:
    rows = [row(), row(overrides="training.lr=1"), row(cell="old"), row(sweep="table2")]
    assert of_sweep([one | {"evaluation": "e"} for one in rows], "table1", {"c": {"e"}}) == [row(evaluation="e")]


def test_evaluations_of_an_older_sweep_stay_out_and_those_that_somebody_asked_for_besides_stay() -> None:
    wanted = row(evaluation="new", T=8, role_T="T_max")
    older = row(evaluation="old", T=6, role_T="T_max")
    further = row(evaluation="own", T=64, role_T="")
    other_items = row(evaluation="fewer items", T=8, role_T="")
    assert of_sweep([older, wanted, further, other_items], "table1", {"c": {"new"}}) == [wanted, further]
