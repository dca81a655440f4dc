"""A pack leaves every cell with what it would have alone: files, result, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from looprepro.config.cell import Cell, Execution
from looprepro.config.identity import cell_id, digest
from looprepro.files.errors import LoopreproError
from looprepro.store import Attempt, Store
from looprepro.store.attempt import Superseded
from looprepro.training import checkpoint
from looprepro.training.run import Outcome, run_cell
from looprepro.training.run_pack import run_pack
from looprepro.training.stack import StackedTrainer

MakeCell = Callable[..., Cell]
STEPS = 8
SEEDS = (0, 1, 2)


@dataclass
class Ran:
    """One call of run_pack."""

    attempts: dict[int, Attempt]
    left: dict[int, Outcome | LoopreproError]


def run(store: Store, cells: Sequence[Cell], execution: Execution, stops_after: int | None = None) -> Ran:
    """``cells`` as one pack; a signal is seen before step ``stops_after + 1`` of the call."""
    members, asked = [], 0
    for cell in cells:
        store.register(cell_id(cell), cell.model_dump(mode="json"))
        attempt = store.claim(cell_id(cell))
        assert attempt is not None
        members.append((cell, attempt))
    seeds = {cell_id(cell): cell.seed for cell in cells}
    left: dict[int, Outcome | LoopreproError] = {}

    def stop() -> str | None:
        nonlocal asked
        asked += 1
        return "SIGTERM" if stops_after is not None and asked > stops_after else None

    def leave(attempt: Attempt, outcome: Outcome | LoopreproError) -> None:
        assert seeds[attempt.cell_id] not in left
        left[seeds[attempt.cell_id]] = outcome
        attempt.end("superseded" if isinstance(outcome, LoopreproError) else "interrupted")

    run_pack(members, execution, stop, leave)
    return Ran({cell.seed: attempt for cell, attempt in members}, left)


def result_of(attempt: Attempt) -> dict[str, Any]:
    result = attempt.result()
    assert result is not None
    return result


def final(attempt: Attempt) -> dict[str, torch.Tensor]:
    found = checkpoint.load(attempt.cell_path / result_of(attempt)["weights"])
    return {f"{stem}/{name}": t for stem, content in found.tensors.items() for name, t in content.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def steps_logged(attempt: Attempt) -> list[int]:
    return [json.loads(line)["step"] for line in (attempt.path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def cells(make_cell: MakeCell) -> list[Cell]:
    """A pack of three."""
    return [make_cell(seed=seed, steps=STEPS, average_last=0.5) for seed in SEEDS]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, int]], None]:
    """``poison({seed: step})``: that seed's gradient is NaN in that update (from 1) of a stack."""

    def install(when: dict[int, int]) -> None:
        plain = StackedTrainer.train_step

        def train_step(self: StackedTrainer) -> Any:
            bad = [i for i, member in enumerate(self.members) if when.get(member.cell.seed) == self.step + 1]

            def spoil(gradient: torch.Tensor) -> torch.Tensor:
                spoiled = gradient.clone()
                spoiled[bad] = torch.nan
                return spoiled

            hook = self.parameters["embedding.weight"].register_hook(spoil)
            try:
                return plain(self)
            finally:
                hook.remove()

        monkeypatch.setattr(StackedTrainer, "train_step", train_step)

    return install


def test_every_member_leaves_the_files_of_a_single_run(
    cells: list[Cell], execution: Execution, store: Store, tmp_path: Path
) -> None:
    ran = run(store, cells, execution)
    alone = Store(tmp_path / "alone")
    assert ran.left == dict.fromkeys(SEEDS, Outcome("done", STEPS))
    for cell in cells:
        attempt, own = ran.attempts[cell.seed], alone.claim(cell_id(cell))
        assert own is not None
        run_cell(cell, [], execution, own, lambda: None)
        own.end("done")
        assert steps_logged(attempt) == steps_logged(own) == list(range(1, STEPS + 1))
        assert {path.name for path in own.path.iterdir()} == {path.name for path in attempt.path.iterdir()}
        expected, found = result_of(own), result_of(attempt)
        assert found.keys() == expected.keys()
        assert (expected["pack"], found["pack"][:2]) == (None, "3-")
        assert 0 < found["device_seconds"] == pytest.approx(found["wall_seconds"] / len(SEEDS), abs=2e-3)
        for name, tensor in final(own).items():
            torch.testing.assert_close(final(attempt)[name], tensor, rtol=1e-3, atol=1e-4)
        # The pack's weights are what the single run's evaluation finds and uses.
        assert run_cell(cell, [], execution, attempt, lambda: None) == Outcome("done", STEPS)


@pytest.mark.parametrize("stops", [[1], [7], [3, 2]], ids=str)
def test_stopped_and_resumed_equals_undisturbed(
    cells: list[Cell], execution: Execution, tmp_path: Path, stops: list[int]
) -> None:
    whole = run(Store(tmp_path / "whole"), cells, execution)
    store = Store(tmp_path / "parts")
    at = 0
    for stop in stops:
        at += stop
        assert run(store, cells, execution, stop).left == dict.fromkeys(SEEDS, Outcome("stopped", at, "SIGTERM"))
    parts = run(store, cells, execution)
    assert len({result_of(ran.attempts[seed])["pack"] for ran in (whole, parts) for seed in SEEDS}) == 1
    for seed in SEEDS:
        assert result_of(parts.attempts[seed])["resumed"] == len(stops)
        assert steps_logged(parts.attempts[seed])[0] == at + 1
        assert equal(final(whole.attempts[seed]), final(parts.attempts[seed]))


def test_a_diverging_seed_is_frozen_out_and_the_others_go_on(
    cells: list[Cell], execution: Execution, store: Store, tmp_path: Path, poison: Callable[[dict[int, int]], None]
) -> None:
    poison({1: 6})
    ran = run(store, cells, execution)
    assert list(ran.left) == [1, 0, 2]
    assert ran.left[1] == Outcome("diverged", 6, "gradient norm is nan")
    result = result_of(ran.attempts[1])
    assert (result["status"], result["step"], result["weights"]) == ("diverged", 6, None)
    assert steps_logged(ran.attempts[1]) == [1, 2, 3, 4, 5]
    for seed in (0, 2):
        assert ran.left[seed] == Outcome("done", STEPS)
        assert steps_logged(ran.attempts[seed]) == list(range(1, STEPS + 1))
    undisturbed = run(Store(tmp_path / "undisturbed"), [cells[0], cells[2]], execution)
    for seed in (0, 2):
        for name, tensor in final(undisturbed.attempts[seed]).items():
            torch.testing.assert_close(final(ran.attempts[seed])[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("when", [{1: 4}, {0: 4, 2: 4}, {0: 3, 1: 4, 2: 6}], ids=str)
@pytest.mark.parametrize("stop", [3, 4])
def test_a_pack_stopped_around_a_divergence_equals_undisturbed(
    cells: list[Cell],
    execution: Execution,
    tmp_path: Path,
    poison: Callable[[dict[int, int]], None],
    when: dict[int, int],
    stop: int,
) -> None:
    poison(when)
    whole = run(Store(tmp_path / "whole"), cells, execution)
    store = Store(tmp_path / "parts")
    first = run(store, cells, execution, stop)
    going = [cell for cell in cells if first.attempts[cell.seed].result() is None]
    attempts = first.attempts | run(store, going, execution).attempts
    for seed in SEEDS:
        expected, found = result_of(whole.attempts[seed]), result_of(attempts[seed])
        assert all(found[name] == expected[name] for name in ("status", "step", "reason", "pack"))
        if found["status"] == "done":
            assert equal(final(whole.attempts[seed]), final(attempts[seed]))


def test_a_rate_far_too_large_ends_every_member(make_cell: MakeCell, execution: Execution, store: Store) -> None:
    ran = run(store, [make_cell(seed=seed, lr=1e30, clip=None, warmup=0) for seed in SEEDS], execution)
    assert all(isinstance(outcome, Outcome) and outcome.status == "diverged" for outcome in ran.left.values())
    assert {result_of(attempt)["status"] for attempt in ran.attempts.values()} == {"diverged"}


def test_members_go_on_from_the_newest_step_that_all_have(cells: list[Cell], execution: Execution, tmp_path: Path) -> None:
    whole = run(Store(tmp_path / "whole"), cells, execution)
    store = Store(tmp_path / "runs")
    run(store, cells, execution, 4)
    run(store, cells[:1], execution, 3)  # seed 0 alone, to step 7
    parts = run(store, cells, execution)
    assert [steps_logged(parts.attempts[seed])[0] for seed in SEEDS] == [5, 5, 5]
    assert all(equal(final(whole.attempts[seed]), final(parts.attempts[seed])) for seed in SEEDS)
    assert result_of(parts.attempts[1])["pack"] == result_of(whole.attempts[1])["pack"]


def test_a_cell_that_goes_on_alone_says_so(cells: list[Cell], execution: Execution, store: Store) -> None:
    first = run(store, cells, execution, 4)
    attempt = run(store, cells[:1], execution).attempts[0]
    assert result_of(attempt)["pack"] == f"3-{digest(sorted(a.cell_id for a in first.attempts.values()))}+alone"


def test_a_damaged_checkpoint_sends_all_members_back_to_the_one_before(
    cells: list[Cell], execution: Execution, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every_third = execution.model_copy(update={"checkpoint_steps": 3})
    whole = run(Store(tmp_path / "whole"), cells, every_third)
    store = Store(tmp_path / "runs")
    first = run(store, cells, every_third, 5)
    (first.attempts[2].path / "checkpoint-00000005" / "weights.safetensors").write_bytes(b"damaged")
    parts = run(store, cells, every_third)
    assert "checkpoint skipped" in capsys.readouterr().out
    assert [steps_logged(parts.attempts[seed])[0] for seed in SEEDS] == [4, 4, 4]
    assert all(equal(final(whole.attempts[seed]), final(parts.attempts[seed])) for seed in SEEDS)


def test_members_without_a_common_step_are_trained_apart_and_the_log_says_so(
    cells: list[Cell], execution: Execution, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run(store, cells[1:], execution, 4)
    ran = run(store, cells, execution)
    assert "step 0: seeds 0; step 4: seeds 1, 2" in capsys.readouterr().out
    assert [steps_logged(ran.attempts[seed])[0] for seed in SEEDS] == [1, 5, 5]
    assert ran.left == dict.fromkeys(SEEDS, Outcome("done", STEPS))
    packs = [result_of(ran.attempts[seed])["pack"] for seed in SEEDS]
    assert packs[0] is None
    assert packs[1] == packs[2]


def test_a_member_that_another_attempt_took_over_leaves_alone(
    cells: list[Cell], execution: Execution, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Attempt.ensure_owner
    stolen = cell_id(cells[1])

    def ensure_owner(self: Attempt) -> None:
        if self.cell_id == stolen:
            raise Superseded(f"cell {stolen}: attempt 1 was superseded")
        plain(self)

    monkeypatch.setattr(Attempt, "ensure_owner", ensure_owner)
    ran = run(store, cells, execution.model_copy(update={"checkpoint_steps": 5}))
    assert isinstance(ran.left[1], Superseded)
    assert ran.attempts[1].result() is None
    assert (ran.left[0], ran.left[2]) == (Outcome("done", STEPS), Outcome("done", STEPS))
