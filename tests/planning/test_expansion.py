"""From a sweep to its cells."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest

from looprepro.config import identity
from looprepro.config.cell import Cell
from looprepro.config.identity import cell_id, evaluation_id
from looprepro.config.presence import Presence
from looprepro.files.errors import ConfigError
from looprepro.planning import Sweep, expand, load_sweep, merge, plan
from looprepro.planning.roles import canonical, resolve


def test_the_grid_is_all_points_of_all_axes_times_seeds(small: Sweep) -> None:
    smoke = expand(small, "smoke")
    assert smoke.entries == len(smoke.cells) == 2 * 3 * 2
    assert len({cell.id for cell in smoke.cells}) == 12
    assert [cell.cell.seed for cell in smoke.cells[:3]] == [0, 1, 0]  # seeds innermost
    assert expand(small, "mini").entries == 2 * 2 * 3


def test_ids_are_those_of_the_whole_cell(small: Sweep) -> None:
    for cell in expand(small, "mini").cells:
        assert cell.id == cell_id(cell.cell)
        assert all(e.id == evaluation_id(e.evaluation) for e in cell.evaluations)
        assert Cell.model_validate(cell.cell.model_dump(mode="json")) == cell.cell


def test_cells_that_differ_in_the_seed_alone_share_their_configuration(small: Sweep) -> None:
    groups: dict[str, set[str]] = {}
    for cell in expand(small, "smoke").cells:
        groups.setdefault(cell.configuration, set()).add(repr(cell.cell.model_copy(update={"seed": 0})))
    assert len(groups) == 6
    assert all(len(cells) == 1 for cells in groups.values())


def test_roles_become_the_numbers_of_the_scale(small: Sweep) -> None:
    """d/2 of 16 is 8 and of 32 is 16; 3/4 of T_max 4 is 3 and of 8 is 6; T is half, once and 1.5 times T_max."""
    for scale, groups, mean, budgets, items in (("smoke", 8, 3.0, [2, 4, 6], 64), ("mini", 16, 6.0, [4, 8, 12], 128)):
        last = expand(small, scale).cells[-1]
        assert last.cell.model.injection.groups == groups
        assert last.cell.model.recurrence.mean == mean
        assert [e.evaluation.T for e in last.evaluations] == budgets
        assert [e.role for e in last.evaluations] == ["T_max/2", "T_max", "3T_max/2"]
        assert [e.evaluation.items for e in last.evaluations] == [items] * 3
        assert last.placements[0].axes == {"group": "S5", "method": "d/2"}
        assert last.placements[0].labels == {"group": "S5", "method": f"conformal, G = {groups}"}


@pytest.mark.parametrize(
    ("value", "number"),
    [("d/2", 32), ("T_max", 16), ("3T_max/2", 24), ("3 T_max / 2", 24), ("3*T_max/2", 24), ("n", 8), ("T_max/3", 16 / 3)],
)
def test_symbolic_values(value: str, number: float) -> None:
    assert resolve(value, {"d": 64, "T_max": 16, "n": 8}) == number


def test_what_is_not_symbolic_stays_as_it_is() -> None:
    for value in ("A5", "diagonal", "d-2", "", 7, None, True):
        assert resolve(value, {}) == value
    assert canonical("3 T_max/2") == "3T_max/2"


def test_a_symbol_without_a_number_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"model\.recurrence\.maximum"):
        resolve("T_max/2", {"T_max": None})
    with pytest.raises(ValueError, match="zero"):
        resolve("d/0", {"d": 64})


def test_a_schedule_without_upper_cut_cannot_have_budgets_by_role(write) -> None:
    path = write(
        ("recurrence: {maximum: 4, mean: 3T_max/4}", "recurrence: {scheme: poisson-full, maximum: null, mean: 8}"),
        ("recurrence: {maximum: 8}", "recurrence: {mean: 4}"),
    )
    with pytest.raises(ConfigError, match=r"'T_max/2' needs model\.recurrence\.maximum.*Give the budgets as numbers"):
        load_sweep(path)


def test_two_roles_that_meet_at_a_scale_are_one_cell_with_two_places(write) -> None:
    """Width 4 has 2 planes, so G = 2 and G = d/2 are the same operator."""
    sweep = load_sweep(write(("width: 16", "width: 4"), ("heads: 2", "heads: 1")))
    smoke = expand(sweep, "smoke", seeds="0", only=["group=A5"])
    assert smoke.entries == 3
    assert len(smoke.cells) == 2
    assert [place.axes["method"] for place in smoke.cells[1].placements] == ["G=2", "d/2"]


def test_a_point_of_a_scale_can_be_new(write) -> None:
    sweep = load_sweep(
        write(
            (
                "axes: {method: [diagonal, d/2]}",
                "axes: {method: [d/2, {role: tied, label: tied rates,"
                " set: {model.injection.method: grouped_diagonal, model.injection.groups: 2}}]}",
            )
        )
    )
    cells = expand(sweep, "mini", seeds="0", only=["group=A5"]).cells
    assert [cell.placements[0].labels["method"] for cell in cells] == ["conformal, G = 16", "tied rates"]
    assert cells[1].cell.model.injection.method == "grouped_diagonal"


def test_identical_cells_of_two_sweeps_are_one_cell(small: Sweep, write) -> None:
    other = load_sweep(
        write(("3T_max/2]", "2T_max]"), ("role: S5, set: {task.group: S5}", "role: Z7, set: {task.group: Z7}"), name="other")
    )
    cells = merge([expand(small, "smoke"), expand(other, "smoke")])
    assert len(cells) == 12 + 6  # A5 is shared, S5 and Z7 are not
    shared = cells[0]
    assert [place.sweep for place in shared.placements] == ["small", "other"]
    assert [e.evaluation.T for e in shared.evaluations] == [2, 4, 6, 8]
    assert [e.evaluation.T for e in shared.placements[1].evaluations] == [2, 4, 8]


def test_merging_a_sweep_with_itself_changes_nothing(small: Sweep) -> None:
    smoke = expand(small, "smoke")
    assert merge([smoke, expand(small, "smoke")]) == smoke.cells


def test_ten_thousand_cells_expand_and_plan_in_two_seconds_of_processor_time(small: Sweep) -> None:
    many = ",".join(map(str, range(1, 401)))
    for arguments in ({"seeds": "0-1999"}, {"seeds": "0-4", "overrides": [f"training.steps={many}"]}):
        started = time.process_time()
        expansion = expand(small, "smoke", **arguments)
        planned = plan(expansion.cells, {})
        spent = time.process_time() - started
        assert planned.wanted >= 12_000
        assert sum(planned.counts.values()) == planned.wanted
        assert spent < 2.0


OPERATOR = "import nothing_of_that_name\n\n\nclass Mine(nothing_of_that_name.Injection):\n    pass\n\n\nclass Bare:\n    pass\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose modules fail on import, so that a test that imports them fails."""
    folder = tmp_path / "own_operators" / "inner"
    folder.mkdir(parents=True)
    for path in (folder.parent / "__init__.py", folder / "__init__.py"):
        path.write_text("raise RuntimeError('imported')\n")
    (folder / "maps.py").write_text(OPERATOR)
    monkeypatch.chdir(tmp_path)
    return folder / "maps.py"


def own(write, method: str) -> Path:
    return write(("{model.injection.method: diagonal}", f'{{model.injection.method: "{method}"}}'))


def test_an_own_operator_is_hashed_without_importing_it(write, package: Path) -> None:
    cell = expand(load_sweep(own(write, "own_operators.inner.maps:Mine")), "smoke").cells[0]
    assert cell.cell.model.injection.source == hashlib.sha256(OPERATOR.encode()).hexdigest()
    assert cell.id.startswith("a5-mine-d16-s0-")
    assert not any(name.startswith("own_operators") for name in sys.modules)


def test_editing_an_own_operator_makes_other_cells(write, package: Path) -> None:
    path = own(write, "own_operators.inner.maps:Mine")
    before = expand(load_sweep(path), "smoke").cells[0].id
    package.write_text(OPERATOR + "# edited\n")
    assert expand(load_sweep(path), "smoke").cells[0].id != before


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("own_operators.inner.map:Mine", r"own_operators\.inner\.map' is missing"),
        ("own_operator:Mine", "own_operator' is missing"),
        ("own_operators.inner.maps.deeper:Mine", "is no package"),
        ("own_operators.inner.maps:Min", r"does not define class Min \(it defines Mine, Bare\)"),
        ("own_operators.inner.maps:Bare", r"Bare of .*maps\.py has no base class\. Derive it from"),
        ("own_operators.inner:", "not of the form package.module:Class"),
        ("sys:Mine", "not found|no Python source file"),
    ],
)
def test_an_own_operator_that_is_not_there_is_a_clear_error(write, package: Path, method: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_sweep(own(write, method))
    assert "small.yaml:18:" in str(caught.value)


def test_a_pinned_source_that_does_not_match_is_an_error(write, package: Path) -> None:
    path = write(
        (
            "{model.injection.method: diagonal}",
            '{model.injection.method: "own_operators.inner.maps:Mine", model.injection.source: "abc"}',
        )
    )
    with pytest.raises(ConfigError, match="does not match the file"):
        load_sweep(path)


def test_a_new_version_of_what_is_measured_means_measuring_again_and_training_nothing_again(
    small: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = expand(small, "smoke").cells
    known = {
        cell.id: Presence("done", evaluations=frozenset(e.id for e in cell.evaluations), has_weights=True) for cell in before
    }
    assert plan(before, known).complete
    monkeypatch.setitem(identity.MEASURES, "budget", identity.MEASURES["budget"] + 1)
    after = expand(small, "smoke").cells
    assert [cell.id for cell in after] == [cell.id for cell in before]
    assert {item.action for item in plan(after, known).items} == {"evaluate"}


def test_parts_of_a_batch_that_nobody_cuts_are_refused_when_the_file_is_read(write) -> None:
    path = write(("execution: {device: cpu}", "execution: {device: cpu, micro_batch: 8}"))
    with pytest.raises(ConfigError, match=r"execution\.micro_batch cuts the batch of a reasoner") as refused:
        load_sweep(path)
    assert "training.micro_batch" in refused.value.remedy


@pytest.mark.parametrize("slots", ["0", "3.5", "half", "true"])
def test_parts_of_a_batch_are_a_number_or_auto(write, slots: str) -> None:
    path = write(("execution: {device: cpu}", f"execution: {{device: cpu, micro_batch: {slots}}}"))
    with pytest.raises(ConfigError, match=r"micro_batch': .* is neither a number of slots nor auto") as refused:
        load_sweep(path)
    assert f"small.yaml:{len(path.read_text().splitlines())}: " in refused.value.message
