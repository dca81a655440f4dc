"""A training that was stopped and went on is the training that was never stopped, bit for bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from looprepro.config.cell import BudgetEvaluation, Cell, Evaluation, Execution
from looprepro.files.errors import StoreError
from looprepro.store import Attempt, Store
from looprepro.store.attempt import Superseded
from looprepro.training import checkpoint
from looprepro.training.run import run_cell

MakeCell = Callable[..., Cell]
Begin = Callable[[Cell], Attempt]


def never() -> str | None:
    return None


def after_steps(count: int) -> Callable[[], str | None]:
    """A signal that is seen before step ``count + 1`` of the attempt."""
    asked = 0

    def stop() -> str | None:
        nonlocal asked
        asked += 1
        return "SIGTERM" if asked > count else None

    return stop


def evaluations(*budgets: int, items: int = 16) -> list[tuple[str, Evaluation]]:
    return [(f"T{budget}", BudgetEvaluation(T=budget, items=items)) for budget in budgets]


def losses(*attempts: Attempt) -> dict[int, tuple[float, float]]:
    """Step -> (loss, gradient norm) of metrics.jsonl, later attempts over earlier ones."""
    found = {}
    for attempt in attempts:
        for line in (attempt.path / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            found[record["step"]] = (record["loss"], record["grad_norm"])
    return found


def weights_of(attempt: Attempt) -> dict[str, torch.Tensor]:
    result = attempt.result()
    assert result is not None
    found = checkpoint.load(attempt.cell_path / result["weights"])
    return {f"{stem}/{name}": t for stem, content in found.tensors.items() for name, t in content.items()}


def documents(attempt: Attempt) -> dict[str, Any]:
    """Evaluations without what names the attempt."""
    found = {}
    for path in sorted((attempt.cell_path / "evaluations").glob("*.json")):
        document = json.loads(path.read_text())
        found[path.name] = {key: document[key] for key in ("evaluation", "metrics", "series")}
    return found


@pytest.mark.parametrize("stops", [[1], [5], [11], [3, 4, 3]], ids=str)
@pytest.mark.parametrize("average_last", [0.0, 0.5])
def test_stopped_and_resumed_equals_undisturbed(
    make_cell: MakeCell, execution: Execution, tmp_path: Path, stops: list[int], average_last: float
) -> None:
    cell = make_cell(average_last=average_last, schedule="cosine")
    attempts = {}
    for name, signals in (("undisturbed", []), ("resumed", stops)):
        store = Store(tmp_path / name)
        made = []
        for stop in [*map(after_steps, signals), never]:
            attempt = store.claim("cell")
            assert attempt is not None
            outcome = run_cell(cell, evaluations(2, 3), execution, attempt, stop)
            attempt.end("done" if outcome.status == "done" else "interrupted", step=outcome.step)
            made.append(attempt)
        assert outcome.status == "done"
        assert outcome.step == 12
        attempts[name] = made
    whole, parts = attempts["undisturbed"][-1], attempts["resumed"][-1]
    result = parts.result()
    assert result is not None
    assert result["resumed"] == len(stops)
    expected, found = weights_of(whole), weights_of(parts)
    assert expected.keys() == found.keys()
    assert any(name.startswith("average/") for name in expected) == (average_last > 0)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert losses(*attempts["undisturbed"]) == losses(*attempts["resumed"])
    assert documents(whole) == documents(parts)
    assert (whole.path / "series.json").read_bytes() == (parts.path / "series.json").read_bytes()


def test_the_average_is_the_mean_of_the_last_weights(make_cell: MakeCell, execution: Execution, tmp_path: Path) -> None:
    cell = make_cell(average_last=0.25)  # of 12 steps: the weights after updates 10, 11, 12
    store = Store(tmp_path / "runs")
    seen = []
    for stop in (after_steps(10), after_steps(1), never):
        attempt = store.claim("cell")
        assert attempt is not None
        run_cell(cell, [], execution, attempt, stop)
        attempt.end("interrupted")
        seen.append(checkpoint.load(attempt.checkpoint_folders()[0]))
    assert [found.step for found in seen] == [10, 11, 12]
    for name, average in seen[-1].tensors["average"].items():
        mean = sum(found.tensors["weights"][name].double() for found in seen) / 3
        torch.testing.assert_close(average.double(), mean, rtol=0, atol=1e-6)
    assert any(
        not torch.equal(seen[-1].evaluated_weights[name], seen[-1].tensors["weights"][name]) for name in average_names(seen)
    )


def average_names(seen: list[checkpoint.Checkpoint]) -> list[str]:
    return list(seen[-1].tensors["average"])


def test_a_signal_right_after_a_checkpoint_leaves_that_checkpoint(make_cell: MakeCell, begin: Begin) -> None:
    cell = make_cell()
    attempt = begin(cell)
    execution = Execution(threads=1, device="cpu", checkpoint_steps=5)
    outcome = run_cell(cell, [], execution, attempt, after_steps(5))
    assert (outcome.status, outcome.step, outcome.reason) == ("stopped", 5, "SIGTERM")
    assert [folder.name for folder in attempt.checkpoint_folders()] == ["checkpoint-00000005"]


def test_a_signal_before_the_first_step_leaves_no_checkpoint(make_cell: MakeCell, begin: Begin, execution: Execution) -> None:
    cell = make_cell()
    attempt = begin(cell)
    assert run_cell(cell, [], execution, attempt, after_steps(0)).status == "stopped"
    assert attempt.checkpoint_folders() == []
    assert attempt.result() is None


def damage_truncate(folder: Path) -> None:
    file = folder / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def damage_flip(folder: Path) -> None:
    file = folder / "optimizer.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


def damage_missing(folder: Path) -> None:
    (folder / "optimizer.safetensors").unlink()


def damage_state_cut(folder: Path) -> None:
    (folder / "state.json").write_text((folder / "state.json").read_text()[:30])


def damage_state_keys(folder: Path) -> None:
    (folder / "state.json").write_text('{"schema": 1}')


def damage_state_step(folder: Path) -> None:
    (folder / "state.json").write_text((folder / "state.json").read_text().replace('"step": 8', '"step": 6'))


def damage_state_forgets_a_file(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    del state["sha256"]["optimizer.safetensors"]
    (folder / "state.json").write_text(json.dumps(state))


DAMAGES = [
    damage_truncate,
    damage_flip,
    damage_missing,
    damage_state_cut,
    damage_state_keys,
    damage_state_step,
    damage_state_forgets_a_file,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_newest_checkpoint_is_named_and_the_previous_one_used(
    make_cell: MakeCell, begin: Begin, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    cell = make_cell()
    first = begin(cell)
    run_cell(cell, [], Execution(threads=1, device="cpu", checkpoint_steps=4), first, after_steps(9))
    first.end("interrupted")
    folders = first.checkpoint_folders()
    assert [folder.name for folder in folders] == ["checkpoint-00000009", "checkpoint-00000008"]
    for file in folders[0].iterdir():
        file.unlink()
    folders[0].rmdir()  # leave 8 and make an older one, so that 8 is the newest
    older = checkpoint.load(folders[1])
    second_newest = checkpoint.save(first.path, 4, 0.0, older.tensors, {})
    capsys.readouterr()
    damage(folders[1])
    assert checkpoint.load_newest(first.checkpoint_folders()).folder == second_newest  # type: ignore[union-attr]
    log = capsys.readouterr().out
    assert log.startswith("checkpoint skipped, an older one is used: ")
    assert "checkpoint-00000008" in log
    assert len(log.splitlines()) == 1


def test_training_goes_on_from_the_previous_checkpoint(
    make_cell: MakeCell, tmp_path: Path, execution: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = make_cell()
    ends = {}
    for name in ("undisturbed", "damaged"):
        attempt = Store(tmp_path / name).claim("cell")
        assert attempt is not None
        if name == "damaged":
            saving = Execution(threads=1, device="cpu", checkpoint_steps=3)
            run_cell(cell, [], saving, attempt, after_steps(8))
            attempt.end("interrupted")
            damage_truncate(attempt.checkpoint_folders()[0])
            attempt = Store(tmp_path / name).claim("cell")
            assert attempt is not None
        run_cell(cell, [], execution, attempt, never)
        ends[name] = weights_of(attempt)
    assert "checkpoint-00000008/weights.safetensors does not match its checksum" in (log := capsys.readouterr().out)
    assert "resumed at step 6 from" in log
    assert all(torch.equal(tensor, ends["damaged"][name]) for name, tensor in ends["undisturbed"].items())


def test_with_no_whole_checkpoint_training_begins_again(
    make_cell: MakeCell, begin: Begin, execution: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = make_cell()
    first = begin(cell)
    run_cell(cell, [], execution, first, after_steps(4))
    first.end("interrupted")
    damage_truncate(first.checkpoint_folders()[0])
    second = begin(cell)
    assert run_cell(cell, [], execution, second, never).status == "done"
    result = second.result()
    assert result is not None
    assert result["resumed"] == 0
    assert min(losses(second)) == 1
    assert "resumed at" not in capsys.readouterr().out


def test_a_superseded_attempt_saves_nothing_more(make_cell: MakeCell, begin: Begin) -> None:
    cell = make_cell()
    attempt = begin(cell)
    execution = Execution(threads=1, device="cpu", checkpoint_steps=3)

    def taken_over_at_step_four() -> str | None:
        if attempt.step == 4:
            (attempt.path.parent / "0002").mkdir(exist_ok=True)
        return None

    with pytest.raises(Superseded, match="attempt 2 owns the cell"):
        run_cell(cell, [], execution, attempt, taken_over_at_step_four)
    assert [path.name for path in attempt.path.glob("checkpoint-*")] == ["checkpoint-00000003"]
    assert attempt.result() is None


def test_weights_that_are_gone_are_trained_again_to_the_same_numbers(
    make_cell: MakeCell, begin: Begin, execution: Execution
) -> None:
    cell = make_cell(average_last=0.5)
    first = begin(cell)
    run_cell(cell, evaluations(2), execution, first, never)
    first.end("done")
    before, numbers = weights_of(first), documents(first)
    (folder,) = first.checkpoint_folders()
    shutil.rmtree(folder)
    second = begin(cell)
    assert run_cell(cell, evaluations(3), execution, second, never).status == "done"
    (again,) = second.checkpoint_folders()
    found = checkpoint.load(again)
    assert all(
        torch.equal(t, before[f"{stem}/{name}"]) for stem, content in found.tensors.items() for name, t in content.items()
    )
    assert documents(second)["T2.json"] == numbers["T2.json"]
    assert set(documents(second)) == {"T2.json", "T3.json"}


def test_damaged_weights_are_an_error_that_says_how_to_go_on(make_cell: MakeCell, begin: Begin, execution: Execution) -> None:
    cell = make_cell()
    first = begin(cell)
    run_cell(cell, [], execution, first, never)
    first.end("done")
    (folder,) = first.checkpoint_folders()
    damage_truncate(folder)
    with pytest.raises(StoreError, match=r"weights\.safetensors does not match its checksum\. Remove .* --retrain"):
        run_cell(cell, evaluations(3), execution, begin(cell), never)
    assert not (first.cell_path / "evaluations").exists()
