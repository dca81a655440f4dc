"""sweeps/table1.yaml says what Table 1 is, at every scale."""

from __future__ import annotations

import pytest

from looprepro.planning import Expansion, expand, load_sweep, stated_numbers

SWEEP = load_sweep("table1")


@pytest.fixture(scope="module", params=["smoke", "mini", "paper"])
def expansion(request: pytest.FixtureRequest) -> Expansion:
    return expand(SWEEP, request.param)


GRID = {  # scale -> (method roles, groups behind them, budgets, seeds)
    "smoke": (["diagonal", "G=1", "G=2", "G=4", "d/2"], [None, 1, 2, 4, 8], [2, 4, 6], 2),
    "mini": (["diagonal", "G=1", "G=2", "G=4", "G=8", "d/2"], [None, 1, 2, 4, 8, 32], [4, 8, 12], 10),
    "paper": (
        ["diagonal", *(f"G={2**k}" for k in range(8)), "d/2"],
        [None, 1, 2, 4, 8, 16, 32, 64, 128, 256],
        [16, 32, 48],
        10,
    ),
}


def test_the_grid_of_every_scale(expansion: Expansion) -> None:
    roles, groups, budgets, seeds = GRID[expansion.scale]
    assert expansion.entries == len(expansion.cells) == 2 * len(roles) * seeds
    first = [cell for cell in expansion.cells if cell.cell.seed == 0]
    for index, group in enumerate(("A5", "S5")):
        half = first[index * len(roles) : (index + 1) * len(roles)]
        assert [cell.placements[0].axes for cell in half] == [{"group": group, "method": role} for role in roles]
        assert [cell.cell.model.injection.groups for cell in half] == groups
        assert {cell.cell.task.group for cell in half} == {group}
    assert all([e.evaluation.T for e in cell.evaluations] == budgets for cell in expansion.cells)
    assert all([e.role for e in cell.evaluations] == ["T_max/2", "T_max", "3T_max/2"] for cell in expansion.cells)


def test_only_the_injection_differs_between_methods(expansion: Expansion) -> None:
    rest = {
        repr(cell.cell.model_copy(update={"seed": 0, "model": cell.cell.model.model_copy(update={"injection": None})}))
        for cell in expansion.cells
        if cell.cell.task.group == "A5"
    }
    assert len(rest) == 1


def test_labels_print_the_actual_number_of_groups(expansion: Expansion) -> None:
    for cell in expansion.cells:
        groups = cell.cell.model.injection.groups
        assert cell.placements[0].labels["method"] == ("diagonal" if groups is None else f"conformal, G = {groups}")


def test_the_poisson_parameter_is_three_quarters_of_T_max(expansion: Expansion) -> None:
    recurrence = expansion.cells[0].cell.model.recurrence
    assert recurrence.scheme == "poisson-conditioned"
    assert recurrence.maximum is not None
    assert recurrence.mean == 0.75 * recurrence.maximum
    assert recurrence.backprop_depth is None


def test_every_scale_says_in_one_line_what_it_shows(expansion: Expansion) -> None:
    note = SWEEP.scale(expansion.scale).note
    assert "\n" not in note
    assert len(note) < 160


def test_the_paper_scale_is_the_stated_protocol() -> None:
    """Stated: width 512, Adam at 1e-4, T_max 32, lengths 2, 4, 8, ..., ten seeds."""
    cells = expand(SWEEP, "paper").cells
    assert {cell.cell.seed for cell in cells} == set(range(10))
    cell = cells[0].cell
    assert (cell.model.width, cell.model.recurrence.maximum, cell.task.curriculum) == (512, 32, "doubling")
    assert (cell.training.optimizer, cell.training.lr, cell.training.average_last) == ("adam", 1e-4, 0.0)


def test_cells_of_different_scales_are_different() -> None:
    ids = [cell.id for scale in ("smoke", "mini", "paper") for cell in expand(SWEEP, scale).cells]
    assert len(ids) == len(set(ids)) == 20 + 120 + 200


def test_the_stated_numbers_are_keyed_by_roles_that_table_1_has() -> None:
    numbers = stated_numbers(SWEEP.paper)
    points = {name: {point.role for point in axis} for name, axis in SWEEP.axes.items()}
    for stated in numbers["table1"]:
        roles = stated.roles(SWEEP.layout.rows[0])
        assert roles.pop("T") == "T_max"
        assert set(roles) == set(points)
        assert all(role in points[axis] for axis, role in roles.items())
        assert "section" in stated.stated_in


def test_the_numbers_are_those_of_the_papers_text() -> None:
    """Read off the prose: 0.692 -> 0.894 on A5, 0.531 -> 0.808 on S5, 0.810, 0.408, 0.721, 0.552, 0.274; 0.692 + 0.049."""
    found = {
        (table, stated.column["group"], stated.row): stated.value
        for table, numbers in stated_numbers("rotate_the_loop").items()
        for stated in numbers
        if "group" in stated.column
    }
    assert found == {
        ("table1", "A5", "diagonal"): 0.692,
        ("table1", "A5", "G=2"): 0.894,
        ("table1", "A5", "d/2"): 0.741,
        ("table1", "S5", "diagonal"): 0.531,
        ("table1", "S5", "G=2"): 0.808,
        ("table2", "A5", "diagonal"): 0.692,
        ("table2", "A5", "G=2"): 0.810,
        ("table3", "A5", "diagonal"): 0.408,
        ("table3", "A5", "pairwise"): 0.721,
        ("table3", "A5", "householder"): 0.552,
        ("table3", "A5", "cayley"): 0.274,
    }
    assert found["table1", "A5", "d/2"] == pytest.approx(0.692 + 0.049)
