"""Tables 2, 3 and 5 and the ablations: what they share with Table 1, what is their own, and that smoke stays small."""

from __future__ import annotations

from functools import partial, reduce
from operator import getitem

import pytest
import torch

from looprepro.models.injections import make_injection
from looprepro.planning import available_sweeps, expand, load_sweep, merge, stated_numbers
from looprepro.randomness import parameter_generator

SCALES = ("smoke", "mini", "paper")
ABLATIONS = {
    "ablation_alphabet": ("generators", "task.alphabet"),
    "ablation_curriculum": ("doubling", "task.curriculum"),
    "ablation_decay_init": ("published", "model.injection.decay_value"),
    "ablation_start_token": ("with", "task.start_token"),
    "ablation_word_length": ("n=20", "task.length"),
}


def ids(sweep: str, scale: str, *only: str) -> set[str]:
    return {cell.id for cell in expand(load_sweep(sweep), scale, only=only).cells}


@pytest.mark.parametrize("scale", SCALES)
def test_the_diagonal_of_table_2_is_table_1s_cell(scale: str) -> None:
    assert ids("table2", scale, "method=diagonal") == ids("table1", scale, "method=diagonal", "group=A5")
    assert not ids("table2", scale) - ids("table2", scale, "method=diagonal") & ids("table1", scale)


@pytest.mark.parametrize("scale", SCALES)
def test_the_other_rows_of_table_2_tie_rates_as_table_1_ties_them_and_never_rotate(scale: str) -> None:
    grouped = [cell.cell.model.injection for cell in expand(load_sweep("table2"), scale, seeds="0").cells][1:]
    assert {injection.method for injection in grouped} == {"grouped_diagonal"}
    conformal = [cell.cell.model.injection for cell in expand(load_sweep("table1"), scale, seeds="0").cells]
    assert {injection.groups for injection in grouped} <= {injection.groups for injection in conformal}


def test_table_2_has_every_group_count_of_the_paper() -> None:
    groups = [cell.cell.model.injection.groups for cell in expand(load_sweep("table2"), "paper", seeds="0").cells]
    assert groups == [None, 1, 2, 4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("scale", SCALES)
def test_the_rows_of_table_3_are_its_own_with_one_fixed_magnitude(scale: str) -> None:
    expansion = expand(load_sweep("table3"), scale)
    assert not {cell.id for cell in expansion.cells} & (ids("table1", scale) | ids("table2", scale))
    injections = [cell.cell.model.injection for cell in expansion.cells if cell.cell.seed == 0]
    assert [(i.method, i.chart, i.groups) for i in injections] == [
        ("diagonal", None, None),
        ("conformal", "pairwise", 1),
        ("conformal", "householder", 1),
        ("conformal", "cayley", 1),
    ]
    assert {(i.decay, i.decay_value) for i in injections} == {("fixed", 0.2**0.5)}
    assert all([e.role for e in cell.evaluations] == ["T_max"] for cell in expansion.cells)


@pytest.mark.parametrize("scale", ["smoke", "mini"])
def test_the_charts_of_table_3_start_from_one_rotation_and_its_diagonal_is_c_times_the_identity(scale: str) -> None:
    """R(theta_i) with theta_i = 10000^(-2i/d) dt and dt = -ln c, written down here by hand."""
    cells = [cell.cell for cell in expand(load_sweep("table3"), scale, seeds="0").cells]
    width, c = cells[0].model.width, 0.2**0.5
    theta = -torch.log(torch.tensor(c, dtype=torch.float64)) * 10_000.0 ** (
        -2 * torch.arange(width // 2, dtype=torch.float64) / width
    )
    planes = [torch.tensor([[t.cos(), -t.sin()], [t.sin(), t.cos()]], dtype=torch.float64) for t in theta]
    wanted = {"diagonal": c * torch.eye(width, dtype=torch.float64)}
    for cell in cells:
        injection = make_injection(cell.model.injection, width)
        injection.initialise(partial(parameter_generator, cell.seed))
        expected = wanted.get(cell.model.injection.method, c * torch.block_diag(*planes))
        assert torch.allclose(injection.matrix(), expected, atol=1e-6), cell.model.injection.chart


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sweep", ["table5_words", "table5_words_blockwise"])
def test_table_5_trains_nothing_of_its_own(sweep: str, scale: str) -> None:
    assert ids(sweep, scale) < ids("table1", scale)
    assert "group-word checkpoints" in load_sweep(sweep).title
    assert sweep not in stated_numbers("rotate_the_loop"), "the paper's numbers are those of language models"


@pytest.mark.parametrize("sweep", ABLATIONS)
def test_one_point_of_an_ablation_is_table_1s_own_and_the_others_change_one_key(sweep: str) -> None:
    own, key = ABLATIONS[sweep]
    cells = expand(load_sweep(sweep), "mini", seeds="0").cells
    table1 = ids("table1", "mini")
    axis = load_sweep(sweep).layout.rows[0]
    assert {cell.placements[0].axes[axis] for cell in cells if cell.id in table1} == {own}
    *sections, name = key.split(".")

    def without(cell: object) -> dict[str, object]:
        document = cell.model_dump(mode="json")  # type: ignore[attr-defined]
        del reduce(getitem, sections, document)[name]
        return {**document, "model": {**document["model"], "injection": document["model"]["injection"]["method"]}}

    assert len({repr(without(cell.cell)) for cell in cells}) == 2  # one per method


def test_the_start_of_the_phases_is_the_only_thing_that_its_ablation_moves() -> None:
    cells = expand(load_sweep("ablation_omega_init"), "mini", seeds="0").cells
    assert [cell.cell.model.injection.omega_init for cell in cells] == ["rope"] * 2 + ["uniform"] * 2 + ["normal"] * 2
    assert sum(cell.id in ids("table1", "mini") for cell in cells) == 2


def test_all_smoke_cells_together_stay_few() -> None:
    sweeps = [
        sweep for sweep in map(load_sweep, available_sweeps()) if "smoke" in sweep.scales and sweep.name.startswith("table")
    ]
    assert len(merge(expand(sweep, "smoke") for sweep in sweeps if sweep.paper == "rotate_the_loop")) <= 48


@pytest.mark.parametrize("sweep", ["table2", "table3"])
def test_stated_numbers_stand_on_rows_that_the_table_has(sweep: str) -> None:
    loaded = load_sweep(sweep)
    roles = {point.role for point in loaded.axes["method"]}
    assert {stated.row for stated in stated_numbers("rotate_the_loop")[sweep]} <= roles
