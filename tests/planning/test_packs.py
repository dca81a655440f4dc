"""Which cells make a pack follows from each cell alone; what is packed keeps its identity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from looprepro.config.cell import Cell, Execution, Injection, ReasonerTraining, StateTrackingTask
from looprepro.config.cell import FixedPointReasoner as Reasoner
from looprepro.config.costs import memory_bytes
from looprepro.planning import PlannedCell, expand, load_sweep, plan
from looprepro.planning.packs import MEMORY, MOST, pack_of, packed, packs

SEEDS = expand(load_sweep("table1"), "mini", only=["method=diagonal", "method=d/2", "group=A5"], seeds="0-11").cells


def seeds_of(pack: list[PlannedCell]) -> list[int]:
    return [cell.cell.seed for cell in pack]


def with_cell(planned: PlannedCell, **keys: object) -> PlannedCell:
    return replace(planned, cell=planned.cell.model_copy(update=keys))


def test_cells_that_differ_in_their_seed_alone_make_packs_of_five() -> None:
    found = packs(packed(SEEDS, "seeds"))
    assert [seeds_of(pack) for pack in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]] * 2
    for pack in found:
        assert len({cell.configuration for cell in pack}) == 1


def test_the_pack_of_a_cell_does_not_depend_on_what_else_is_wanted() -> None:
    every = {cell.id: pack_of(cell) for cell in packed(SEEDS, "seeds")}
    some = [cell for cell in packed(SEEDS, "seeds") if cell.cell.seed in (3, 4, 5)]
    assert [every[cell.id] for cell in some] == [pack_of(cell) for cell in some]
    assert [seeds_of(pack) for pack in packs(some)] == [[3, 4], [3, 4]]  # a pack of one is a cell


def test_packing_changes_no_identity_and_the_scale_decides_unless_asked() -> None:
    assert [cell.id for cell in packed(SEEDS, "seeds")] == [cell.id for cell in SEEDS]
    assert packed(SEEDS, None) == SEEDS
    assert packs(packed(SEEDS, "none")) == []


def test_what_cannot_be_stacked_trains_alone() -> None:
    planned = packed(SEEDS, "seeds")[0]
    assert pack_of(planned)
    model = planned.cell.model
    own = with_cell(planned, model=model.model_copy(update={"injection": Injection(method="own.module:Class")}))
    assert pack_of(own) == ""
    reasoner = Cell(task=StateTrackingTask(), model=Reasoner(), training=ReasonerTraining(), seed=0)
    assert pack_of(replace(planned, cell=reasoner)) == ""


@pytest.mark.parametrize(("batch", "members"), [(256, 3), (384, 2), (512, 1)])
def test_a_pack_fits_into_memory(batch: int, members: int) -> None:
    """A cell of the paper needs 20.2 GB by the formulas, nearly all in proportion to the batch; 64 GB are there."""
    cells = expand(load_sweep("table1"), "paper", only=["method=diagonal", "group=A5"], overrides=[f"training.batch={batch}"])
    need = memory_bytes(cells.cells[0].cell)
    assert need is not None
    assert members == int(MEMORY // need) < MOST
    sizes = [len(pack) for pack in packs(packed(cells.cells, "seeds"))]
    assert sizes == ({3: [3, 3, 3], 2: [2] * 5, 1: []}[members])


def test_a_plan_shows_the_packs_of_what_it_would_train() -> None:
    made = plan(packed(SEEDS, "seeds"), {})
    assert [len(pack) for pack in made.packs] == [5, 5, 2] * 2
    assert plan(SEEDS, {}).packs == ()
    assert Execution().pack == "none"
