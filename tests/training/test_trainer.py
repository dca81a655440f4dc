"""What methods share, when a run is over, and learning rates worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest
import torch

from looprepro.config.cell import BudgetEvaluation, Cell, Execution, Injection, Training
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.native.library import find_compiler
from looprepro.store import Attempt
from looprepro.tasks import make_task
from looprepro.training.families import Diverged
from looprepro.training.run import run_cell
from looprepro.training.schedule import learning_rate
from looprepro.training.trainer import WordTrainer, build_model

MakeCell = Callable[..., Cell]
Begin = Callable[[Cell], Attempt]
CPU = torch.device("cpu")


def trainer_of(cell: Cell) -> WordTrainer:
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    return WordTrainer(cell, task, Execution(threads=1, device="cpu"), CPU)


def test_methods_share_all_weights_outside_the_injection(make_cell: MakeCell) -> None:
    injections = [
        Injection(),
        Injection(method="conformal", groups=1),
        Injection(method="conformal", groups=4),
        Injection(method="conformal", groups=2, chart="cayley"),
        Injection(method="grouped_diagonal", groups=2),
    ]
    states = []
    for injection in injections:
        cell = make_cell(injection=injection)
        states.append(build_model(cell, make_task(cell.task, 3, 12, 4)).state_dict())
    shared = {name for name in states[0] if not name.startswith("injection.")}
    assert len(shared) > 10
    for state in states[1:]:
        assert {name for name in state if not name.startswith("injection.")} == shared
        assert all(torch.equal(state[name], states[0][name]) for name in shared)
    other = make_cell(seed=4)
    fourth = build_model(other, make_task(other.task, 4, 12, 4)).state_dict()
    assert any(not torch.equal(fourth[name], states[0][name]) for name in shared)


def test_methods_see_the_same_words_depths_and_initial_states(make_cell: MakeCell) -> None:
    one, two = trainer_of(make_cell()), trainer_of(make_cell(injection=Injection(method="conformal", groups=2)))
    assert torch.equal(one.sample_depths(7), two.sample_depths(7))
    assert torch.equal(one.initial_state(7, 4, 5), two.initial_state(7, 4, 5))
    rows = torch.arange(4)
    assert torch.equal(one.task.examples(rows, 11).tokens, two.task.examples(rows, 11).tokens)
    assert not torch.equal(one.initial_state(7, 4, 5), one.initial_state(8, 4, 5))


def test_depths_do_not_depend_on_the_seed(make_cell: MakeCell) -> None:
    one, two = trainer_of(make_cell(seed=0, batch=64)), trainer_of(make_cell(seed=1, batch=64))
    assert torch.equal(one.sample_depths(3), two.sample_depths(3))
    assert len(set(one.sample_depths(3).tolist())) > 1


@pytest.mark.parametrize(("value", "text"), [(math.nan, "loss is nan"), (math.inf, "loss is inf")])
def test_a_loss_that_is_not_finite_ends_the_cell_without_a_number(
    make_cell: MakeCell, begin: Begin, execution: Execution, monkeypatch: pytest.MonkeyPatch, value: float, text: str
) -> None:
    cell = make_cell()
    attempt = begin(cell)
    plain = WordTrainer.sample_depths

    def poisoned(self: WordTrainer, step: int) -> torch.Tensor:
        if step == 6:
            plain_loss = self.task.loss
            monkeypatch.setattr(self.task, "loss", lambda logits, batch: plain_loss(logits, batch) * value)
        return plain(self, step)

    monkeypatch.setattr(WordTrainer, "sample_depths", poisoned)
    outcome = run_cell(cell, [("T2", BudgetEvaluation(T=2, items=8))], execution, attempt, lambda: None)
    assert (outcome.status, outcome.step, outcome.reason) == ("diverged", 7, text)
    result = attempt.result()
    assert result is not None
    assert (result["status"], result["step"], result["reason"], result["weights"]) == ("diverged", 7, text, None)
    assert not (attempt.cell_path / "evaluations").exists()
    logged = [json.loads(line)["step"] for line in (attempt.path / "metrics.jsonl").read_text().splitlines()]
    assert logged == [1, 2, 3, 4, 5, 6]


def test_a_rate_far_too_large_is_reported_as_diverged_and_stays_so(
    make_cell: MakeCell, begin: Begin, execution: Execution
) -> None:
    cell = make_cell(lr=1e30, clip=None, warmup=0)
    first = begin(cell)
    outcome = run_cell(cell, [("T2", BudgetEvaluation(T=2, items=8))], execution, first, lambda: None)
    assert outcome.status == "diverged"
    assert outcome.reason.startswith(("loss is ", "gradient norm is "))
    first.end("diverged")
    again = begin(cell)
    assert run_cell(cell, [("T2", BudgetEvaluation(T=2, items=8))], execution, again, lambda: None) == outcome
    assert not (again.path / "metrics.jsonl").exists()  # not one step more


def test_a_gradient_that_is_not_finite_leaves_the_weights_untouched(make_cell: MakeCell) -> None:
    trainer = trainer_of(make_cell())
    trainer.train_step()
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    next(iter(trainer.parameters.values())).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(Diverged, match="gradient norm is nan at step 2"):
        trainer.train_step()
    assert all(torch.equal(p, before[name]) for name, p in trainer.parameters.items())
    assert trainer.step == 1


def test_the_first_update_of_adam_moves_by_the_learning_rate(make_cell: MakeCell) -> None:
    """After one step m/(1-b1) = g and v/(1-b2) = g^2, so that every weight with a gradient moves by lr g/(|g| + eps)."""
    trainer = trainer_of(make_cell(lr=0.25, warmup=0, clip=None, eps=1e-30))
    before = {name: p.detach().clone() for name, p in trainer.parameters.items()}
    trainer.train_step()
    moved = torch.cat([(p.detach() - before[name])[p.grad != 0].abs() for name, p in trainer.parameters.items()])  # type: ignore[index]
    assert len(moved) > 500
    torch.testing.assert_close(moved, torch.full_like(moved, 0.25), rtol=1e-4, atol=1e-6)


def rates(steps: Sequence[int], **training: object) -> list[float]:
    return [learning_rate(Training(lr=8.0, steps=100, warmup=4, **training), step) for step in steps]  # type: ignore[arg-type]


def test_warm_up_is_linear_and_loses_no_update() -> None:
    for schedule in ("constant", "cosine", "trapezoid"):
        assert rates([0, 1, 2, 3], schedule=schedule) == [2.0, 4.0, 6.0, 8.0]
    assert learning_rate(Training(lr=8.0, warmup=0), 0) == 8.0


def test_constant_stays() -> None:
    assert rates([4, 50, 99]) == [8.0, 8.0, 8.0]


def test_cosine_values_by_hand() -> None:
    # Progress (step - 4) / 96: 0, a quarter, a half, three quarters; cos 0, 45, 90, 135 degrees.
    root = math.sqrt(0.5)
    expected = [8.0, 4.0 * (1 + root), 4.0, 4.0 * (1 - root)]
    assert rates([4, 28, 52, 76], schedule="cosine") == pytest.approx(expected)
    assert rates([52], schedule="cosine", final_lr_ratio=0.5) == pytest.approx([6.0])


def test_trapezoid_values_by_hand() -> None:
    # The last 20 of 100 updates fall: full at 80 updates done, half at 90, one twentieth at the last.
    assert rates([4, 79, 80, 90, 99], schedule="trapezoid", cooldown=0.2) == pytest.approx([8.0, 8.0, 8.0, 4.0, 0.4])
    assert rates([90], schedule="trapezoid", cooldown=0.2, final_lr_ratio=0.5) == pytest.approx([6.0])
    assert rates([99], schedule="trapezoid", cooldown=0.0) == [8.0]


def test_a_scale_that_asks_for_compiling_gets_the_compiled_step(make_cell: MakeCell, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    asked = []
    monkeypatch.setattr(LoopedTransformer, "compile_core", lambda model, **options: asked.append(options))
    WordTrainer(cell, task, Execution(device="cpu", compile=False), CPU)
    assert asked == []
    WordTrainer(cell, task, Execution(device="cpu", compile=True), CPU)
    assert asked == [{}]


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "fused"), ("float64", "fused"), ("bfloat16", "plain")])
def test_the_kernels_that_a_row_names_are_those_that_ran(make_cell: MakeCell, dtype: str, kind: str) -> None:
    if kind == "fused" and find_compiler() is None:
        pytest.skip("the fused kernels need a C compiler")
    trainer = trainer_of(make_cell(dtype=dtype))
    assert trainer.kernels == kind
    assert math.isfinite(trainer.train_step().loss)
