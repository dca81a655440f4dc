"""sweeps/table4, table5 and table8: what is compared, on which cells, at which budget of tokens."""

from __future__ import annotations

import re

import pytest

from looprepro.analysis.references import load_references
from looprepro.config.language_formulas import model_parameters, tokens_per_parameter, total_steps
from looprepro.planning import expand, load_sweep, plan

SCALES = ("smoke", "mini", "paper")
FAMILY = ("table4", "table5", "table5_blockwise")


def ids(sweep: str, scale: str) -> set[str]:
    return {cell.id for cell in expand(load_sweep(sweep), scale).cells}


@pytest.mark.parametrize("scale", SCALES)
def test_table_4_is_three_sizes_by_two_methods_that_differ_in_the_injection_alone(scale: str) -> None:
    cells = [cell for cell in expand(load_sweep("table4"), scale).cells if cell.cell.seed == 0]
    assert [tuple(cell.placements[0].axes.values()) for cell in cells] == [
        (size, method) for size in ("small", "medium", "large") for method in ("diagonal", "G=2")
    ]
    assert all([e.evaluation.T for e in cell.evaluations] == [1, 8, 16, 32, 48] for cell in cells)
    for one, other in zip(cells[::2], cells[1::2], strict=True):
        rest = [c.cell.model.model_copy(update={"injection": None}) for c in (one, other)]
        assert rest[0] == rest[1]
        assert (one.cell.task, one.cell.training) == (other.cell.task, other.cell.training)


def test_the_paper_scale_has_one_run_per_cell_and_seeds_can_be_asked_for() -> None:
    sweep = load_sweep("table4")
    assert {cell.cell.seed for cell in expand(sweep, "paper").cells} == {0}
    assert len(expand(sweep, "paper", seeds="0-2").cells) == 18
    assert [total_steps(cell.cell) for cell in expand(sweep, "paper", only=["method=diagonal"]).cells] == [9326, 22021, 59204]


def test_mini_has_three_seeds_on_the_smallest_width_and_models_of_half_a_million_to_two_million_parameters() -> None:
    cells = expand(load_sweep("table4"), "mini").cells
    assert len(cells) == 2 * 3 + 2 + 2
    seeds = {(cell.cell.model.width, cell.cell.seed) for cell in cells}
    assert seeds == {(96, 0), (96, 1), (96, 2), (128, 0), (192, 0)}
    assert all(0.5e6 < model_parameters(cell.cell) < 2e6 for cell in cells)
    assert {(cell.cell.task.vocabulary, cell.cell.task.sequence) for cell in cells} == {(2048, 128)}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*FAMILY, "table4_last_word", "table8"])
def test_every_scale_says_in_one_line_what_it_shows(name: str, scale: str) -> None:
    sweep = load_sweep(name)
    if scale in sweep.scales:
        note = sweep.scale(scale).note
        assert "\n" not in note
        assert len(note) < 160
        assert ("two" in note and "magnitudes" in note) == (name == "table5"), "why G = 2 has a defect on the sphere"


@pytest.mark.parametrize("scale", ["mini", "paper"])
@pytest.mark.parametrize("name", [*FAMILY, "table8"])
def test_the_title_says_how_many_tokens_a_parameter_got(name: str, scale: str) -> None:
    sweep = load_sweep(name)
    said = re.search(r"([\d.]+) tokens per parameter", sweep.title_at(scale))
    assert said is not None
    for planned in expand(sweep, scale).cells:
        assert tokens_per_parameter(planned.cell) == pytest.approx(float(said[1]), rel=0.01)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["table5", "table5_blockwise"])
def test_table_5_measures_the_cells_and_the_evaluations_of_table_4_and_trains_none(name: str, scale: str) -> None:
    own, other = (expand(load_sweep(sweep), scale) for sweep in (name, "table4"))
    evaluations = {cell.id: {e.id for e in cell.evaluations} for cell in other.cells}
    assert {cell.id for cell in own.cells} == evaluations.keys()
    assert all({e.id for e in cell.evaluations} < evaluations[cell.id] for cell in own.cells)
    assert {e.evaluation.T for cell in own.cells for e in cell.evaluations} == {8, 16, 32, 48}
    made = plan(own.cells, {})
    assert made.to_run == ()
    assert len(made.untrained) == len(own.cells)


def test_the_other_columns_of_table_4_share_its_cells_and_only_the_paper_scale_says_lambada() -> None:
    assert ids("table4_lambada", "paper") == ids("table4", "paper")
    assert load_sweep("table4_lambada").scales.keys() == {"paper"}
    stand_in = load_sweep("table4_last_word")
    assert "stand-in" in stand_in.title
    assert stand_in.layout.metric == "last_word_accuracy"
    for scale in ("smoke", "mini"):
        assert ids("table4_last_word", scale) == ids("table4", scale)
        assert not any("lambada" in e.evaluation.metrics for c in expand(stand_in, scale).cells for e in c.evaluations)


GROUPS = {
    "smoke": [None, 1, 2, 4, 16],
    "mini": [None, 1, 2, 4, 8, 48],
    "paper": [None, 1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64, 80, 160, 320],
}


@pytest.mark.parametrize("scale", SCALES)
def test_table_8_runs_the_diagonal_and_one_group_both_ways_and_the_others_through_all_steps(scale: str) -> None:
    cells = [cell for cell in expand(load_sweep("table8"), scale).cells if cell.cell.seed == 0]
    by_bptt = {
        role: [c.cell.model.injection.groups for c in cells if c.placements[0].axes["bptt"] == role]
        for role in ("truncated", "full")
    }
    assert by_bptt == {"truncated": [None, 1], "full": GROUPS[scale]}
    for cell in cells:
        recurrence, truncated = cell.cell.model.recurrence, cell.placements[0].axes["bptt"] == "truncated"
        assert recurrence.scheme == ("poisson-truncated-full" if truncated else "poisson-full")
        assert recurrence.backprop_depth == (4 if truncated else None)
        assert recurrence.mean == 8


def test_the_stated_numbers_stand_where_the_paper_states_them() -> None:
    """22.45 for the 60M diagonal from T = 8 on; a defect of 0.06 for it at T = 8; nothing beside a stand-in."""
    table4 = load_references(load_sweep("table4"))
    stated = {T: table4.get({"size": "small", "method": "diagonal", "T": T}) for T in ("1", "8", "16", "32", "48")}
    assert {T: found.value if found else None for T, found in stated.items()} == {"1": None} | dict.fromkeys(
        ("8", "16", "32", "48"), 22.45
    )
    assert table4.get({"size": "medium", "method": "diagonal", "T": "8"}) is None
    assert table4.get({"size": "small", "method": "G=2", "T": "8"}) is None
    table5 = load_references(load_sweep("table5"))
    blockwise = load_references(load_sweep("table5_blockwise"))
    for table in (table5, blockwise):  # the diagonal's one block is the whole sphere: one measurement, one stated number
        assert table.get({"size": "small", "method": "diagonal", "T": "8"}).value == 0.06
        assert table.get({"size": "small", "method": "G=2", "T": "8"}) is None
    for name in ("table4_last_word", "table4_lambada", "table8"):
        assert load_references(load_sweep(name)).get({"size": "small", "method": "diagonal", "T": "8"}) is None
