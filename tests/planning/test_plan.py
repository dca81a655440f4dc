"""plan = wanted - there, a reason per cell, and counts that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from looprepro.config.presence import STATUSES, Presence
from looprepro.planning import Expansion, PlannedCell, budgets, estimate, expand, load_sweep, plan
from looprepro.planning.estimate import CPU_FRACTION_OF_PEAK

EXPANSION: Expansion = expand(load_sweep("table1"), "smoke")
CELL: PlannedCell = EXPANSION.cells[0]
ALL = frozenset(e.id for e in CELL.evaluations)
SOME = frozenset(e.id for e in CELL.evaluations if e.role != "3T_max/2")

CASES = {
    "nothing": (Presence(), "train", "train", "no attempt yet"),
    "done": (Presence("done", evaluations=ALL, has_weights=True), "none", "done", "done"),
    "done, weights freed, nothing missing": (Presence("done", evaluations=ALL), "none", "done", "done"),
    "one budget missing": (Presence("done", evaluations=SOME, has_weights=True), "evaluate", "evaluate", "T=6 not evaluated"),
    "archived and complete": (Presence("done", evaluations=ALL, archived=True), "none", "done", "done (archived rows)"),
    "archived, one budget missing": (
        Presence("done", evaluations=SOME, archived=True),
        "none",
        "needs retraining",
        "needs retraining: T=6 not evaluated and only archived rows are left",
    ),
    "archived, though weights are said to exist": (
        Presence("done", evaluations=SOME, archived=True, has_weights=True),
        "none",
        "needs retraining",
        "needs retraining: T=6 not evaluated and only archived rows are left",
    ),
    "weights freed, one budget missing": (
        Presence("done", evaluations=SOME),
        "none",
        "needs retraining",
        "needs retraining: T=6 not evaluated and its weights are gone",
    ),
    "diverged": (
        Presence("diverged", "loss is nan at step 12", attempts=1),
        "none",
        "diverged",
        "diverged: loss is nan at step 12",
    ),
    "queued": (Presence("queued", attempts=1), "wait", "wait", "queued"),
    "running": (Presence("running", attempts=1, step=40), "wait", "wait", "running at step 40"),
    "failed at the start": (
        Presence("failed", "out of memory", attempts=1),
        "train",
        "train",
        "failed: out of memory (retry); from the start",
    ),
    "failed on the way": (
        Presence("failed", "out of memory", attempts=2, step=40),
        "resume",
        "resume",
        "failed: out of memory (retry); resume, step 40 was reached",
    ),
    "failed in the evaluation": (
        Presence("failed", "killed", attempts=1, step=60, evaluations=SOME, has_weights=True),
        "evaluate",
        "evaluate",
        "failed: killed (retry); T=6 not evaluated",
    ),
    "lost": (
        Presence("lost", "no heartbeat", attempts=1, step=20),
        "resume",
        "resume",
        "lost: no heartbeat; resume, step 20 was reached",
    ),
    "cancelled": (Presence("cancelled", attempts=1), "train", "train", "cancelled; from the start"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_cell_gets_an_action_and_a_reason(case: str) -> None:
    known, action, state, reason = CASES[case]
    item = plan([CELL], {CELL.id: known}).items[0]
    assert (item.action, item.state, item.reason) == (action, state, reason)


def test_budgets_that_differ_in_other_settings_only_are_counted() -> None:
    assert budgets([8, 16]) == "T=8, T=16"
    assert budgets([256] * 15 + [8]) == "T=256 (15 settings), T=8"


def test_a_cell_that_needs_retraining_starts_only_when_asked() -> None:
    present = {CELL.id: Presence("done", evaluations=SOME, archived=True)}
    silent = plan([CELL], present)
    assert silent.to_run == ()
    assert silent.needs_retraining == silent.items
    assert not silent.complete
    assert plan([CELL], present, retrain=True).to_run[0].action == "train"


def test_a_diverged_cell_is_a_result_and_completes_the_plan() -> None:
    assert plan([CELL], {CELL.id: Presence("diverged", attempts=1)}).complete


presences = st.builds(
    Presence,
    status=st.sampled_from(STATUSES),
    cause=st.sampled_from(["", "why"]),
    evaluations=st.sets(st.sampled_from(sorted(ALL))).map(frozenset),
    attempts=st.integers(0, 3),
    step=st.integers(0, 100),
    hours=st.none() | st.floats(0.01, 2),
    archived=st.booleans(),
    has_weights=st.booleans(),
)


@given(st.lists(st.none() | presences, min_size=len(EXPANSION.cells), max_size=len(EXPANSION.cells)), st.booleans())
def test_counts_always_add_up_to_the_cells_wanted(found: list[Presence | None], retrain: bool) -> None:
    present = {cell.id: known for cell, known in zip(EXPANSION.cells, found, strict=True) if known is not None}
    planned = plan(EXPANSION.cells, present, retrain)
    assert sum(planned.counts.values()) == planned.wanted == len(EXPANSION.cells)
    assert [item.cell.id for item in planned.items] == [cell.id for cell in EXPANSION.cells]
    assert planned.evaluations_done + sum(len(item.missing) for item in planned.items) == planned.evaluations_wanted == 60
    for item in planned.items:
        assert (item.action == "none") == (item.state in ("done", "diverged", "needs retraining"))
        assert item.reason
        if item.state == "done":
            assert not item.missing
        if item.cell.id in present and present[item.cell.id].status == "diverged":
            assert item.action == "none"


def hours(value: float, cell: PlannedCell = CELL) -> Presence:
    wanted = frozenset(e.id for e in cell.evaluations)
    return Presence("done", evaluations=wanted, has_weights=True, hours=value, attempts=1)


@pytest.fixture
def measuring_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "evaluation_flops", lambda cell, evaluations: 0.0)


@pytest.mark.usefixtures("measuring_is_free")
def test_hours_come_from_done_seeds_of_the_same_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 1e9 * cell.training.steps)
    cells = [
        c
        for c in expand(load_sweep("table1"), "mini").cells
        if c.configuration == expand(load_sweep("table1"), "mini").cells[0].configuration
    ]
    planned = plan(cells, {cells[0].id: hours(0.1, cells[0]), cells[1].id: hours(0.3, cells[1])})
    assert planned.bases == {"measured": 8}
    assert planned.device_hours == pytest.approx(8 * 0.2)


@pytest.mark.usefixtures("measuring_is_free")
def test_a_cell_on_its_way_costs_what_is_left_of_it() -> None:
    cells = EXPANSION.cells[:2]  # two seeds
    planned = plan(cells, {cells[0].id: hours(1.0), cells[1].id: Presence("lost", step=45, attempts=1)})
    assert planned.device_hours == pytest.approx(0.25)  # 15 of 60 steps are left


@pytest.mark.usefixtures("measuring_is_free")
def test_other_configurations_are_scaled_by_their_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 is said to need twice the operations of A5, so it takes twice its measured hours."""
    monkeypatch.setattr(estimate, "train_flops", lambda cell: (2e9 if cell.task.group == "S5" else 1e9) * cell.training.steps)
    cells = expand(load_sweep("table1"), "mini", only=["method=diagonal"], seeds="0").cells
    planned = plan(cells, {cells[0].id: hours(0.5, cells[0])})
    assert planned.bases == {"scaled": 1}
    assert planned.device_hours == pytest.approx(1.0)


@pytest.mark.usefixtures("measuring_is_free")
def test_without_measurements_the_speed_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """3000 steps of 1e12 operations on one core of 100e9 operations per second at the assumed share of it."""
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 3000e12)
    cells = expand(load_sweep("table1"), "mini", only=["method=diagonal", "group=A5"], seeds="0").cells
    planned = plan(cells, {})
    assert planned.bases == {"assumed": 1}
    assert planned.device_hours == pytest.approx(3000e12 / (100e9 * CPU_FRACTION_OF_PEAK) / 3600)


@pytest.mark.usefixtures("measuring_is_free")
def test_a_gpu_is_assumed_to_reach_three_tenths_of_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 1e18)
    for name, peak in (("table1", 67e12), ("table4", 989e12)):  # float32, bfloat16
        (cell, *_) = expand(load_sweep(name), "paper", seeds="0").cells
        assert plan([cell], {}).device_hours == pytest.approx(1e18 / (0.3 * peak) / 3600)


def test_measuring_costs_what_is_missing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is said to be worth nine evaluations; a cell with its three took 1.2 hours: 0.1 an evaluation."""
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 9e9)
    monkeypatch.setattr(estimate, "evaluation_flops", lambda cell, evaluations: 1e9 * len(evaluations))
    cells = expand(load_sweep("table1"), "smoke", seeds="0-3").cells[:4]  # of one configuration
    present = {
        cells[0].id: hours(1.2),
        cells[1].id: Presence("done", evaluations=SOME, has_weights=True, attempts=1),
        cells[2].id: Presence("lost", step=40, attempts=1),
    }
    planned = plan(cells, present)
    assert [item.action for item in planned.items] == ["none", "evaluate", "resume", "train"]
    assert [item.hours for item in planned.items] == pytest.approx([0.0, 0.1, 0.3 + 0.3, 1.2])
    assert planned.bases == {"measured": 3}
    archived = {cells[0].id: Presence("done", evaluations=ALL, hours=0.9, archived=True)}  # rows know training's hours alone
    assert plan(cells[:2], archived).items[1].hours == pytest.approx(1.2)


def test_a_cell_that_mostly_measures_says_nothing_about_the_speed_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """S5 is measured for four times its training, by a count at most, and is done in no time, since puzzles halt."""
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 3e12)
    only_s5 = {"S5": 4e12, "A5": 1e9}
    monkeypatch.setattr(estimate, "evaluation_flops", lambda cell, evaluations: only_s5[cell.task.group] * len(evaluations))
    a5, s5 = expand(load_sweep("table1"), "mini", only=["method=diagonal"], seeds="0").cells
    planned = plan([a5, s5], {s5.id: hours(0.001, s5)})
    assert planned.bases == {"assumed": 1}
    other = plan([a5, s5], {a5.id: hours(0.001, a5)})
    assert other.bases == {"scaled": 1}


def test_all_ranks_wait_while_one_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "train_flops", lambda cell: 1e18)
    monkeypatch.setattr(estimate, "evaluation_flops", lambda cell, evaluations: 1e16 * len(evaluations))
    (cell, *_) = expand(load_sweep("table4"), "paper", seeds="0").cells
    assert cell.execution.ranks == 8
    operations = 1e18 + 8 * 1e16 * len(cell.evaluations)
    assert plan([cell], {}).device_hours == pytest.approx(operations / (0.3 * 989e12) / 3600)


def test_nothing_is_estimated_where_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> float:
        raise AssertionError("asked for an estimate")

    monkeypatch.setattr(estimate, "train_flops", never)
    monkeypatch.setattr(estimate, "evaluation_flops", never)
    planned = plan(EXPANSION.cells, {cell.id: hours(1.0) for cell in EXPANSION.cells})
    assert planned.complete
    assert planned.device_hours == 0.0


def test_assumed_hours_are_near_measured_ones() -> None:
    """Seconds on one of two busy cores, by results/mini: the median cell of Table 1, and a language model."""
    for name, only, seconds in (("table1", "group=A5", 160.0), ("table4", "size=small", 219.0)):
        (cell, *_) = expand(load_sweep(name), "mini", only=["method=diagonal", only], seeds="0").cells
        assumed = plan([cell], {}).device_hours
        assert assumed is not None
        assert 1 / 1.5 < assumed * 3600 / seconds < 1.5, (name, assumed * 3600, seconds)


def test_an_estimate_that_rests_on_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "train_flops", lambda cell: None)
    assert plan([CELL], {}).device_hours is None
    assert plan([CELL], {}).bases == {"unknown": 1}


@pytest.mark.parametrize("scale", ["smoke", "mini", "paper"])
def test_the_formulas_of_the_project_cover_table_1(scale: str) -> None:
    planned = plan(expand(load_sweep("table1"), scale).cells, {})
    assert set(planned.bases) == {"assumed"}
    assert planned.device_hours is not None
    assert planned.device_hours > 0
