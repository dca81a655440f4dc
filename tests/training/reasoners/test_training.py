"""Algorithm 2: windows, refilled slots, one update each; resumed bit for bit; what a sample draws follows from its row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Execution, ReasonerEvaluation
from looprepro.config.identity import cell_id
from looprepro.files.errors import StoreError
from looprepro.models.fixed_point.solver import advance, begin
from looprepro.models.fixed_point.stablemax import answer_loss
from looprepro.store import Attempt, Store
from looprepro.training import checkpoint
from looprepro.training.adam_atan2 import AdamATan2
from looprepro.training.families import Diverged
from looprepro.training.reasoner import ReasonerTrainer, build_reasoner, load_reasoner, noise_source, reasoner_parts
from looprepro.training.reasoners import task_of
from looprepro.training.run import run_cell
from looprepro.training.slots import fewest_windows

CPU = torch.device("cpu")
SUDOKU = {"kind": "sudoku", "side": 4, "empty": (3, 6), "train_items": 8, "augmentations": 2}
WORDS = {"kind": "state_tracking", "group": "S3", "length": 4, "test_lengths": (6,)}
TINY = {"width": 8, "heads": 2, "layers": 1, "prefix": 2}


def make_cell(model: dict[str, Any] | None = None, task: dict[str, Any] | None = None, seed: int = 3, **training: Any) -> Cell:
    words = task is not None and task["kind"] == "state_tracking"
    base = TINY | {"kind": "fixed_point", "convolution": "1d"} | ({"prefix": 0, "positions": "none"} if words else {})
    defaults = {"kind": "windows", "steps": 10, "batch": 4, "warmup": 2, "lr": 1e-2, "window": 2, "max_windows": 3, "ema": 0.5}
    return Cell.model_validate(
        {"task": task or SUDOKU, "model": base | (model or {}), "training": defaults | training, "seed": seed}
    )


def trainer_of(cell: Cell) -> ReasonerTrainer:
    return ReasonerTrainer(cell, task_of(cell), Execution(threads=1, device="cpu"), CPU)


MODELS: list[dict[str, Any]] = [
    {"training": {}},
    {"training": {"caps": "gamma", "optimizer": "adam_atan2", "eta_dtype": "bfloat16"}, "model": {"convolution": "2d"}},
    {"training": {"halting": "act", "window": 1}, "model": {"kind": "recursive", "method": "trm", "low_cycles": 1}},
    {
        "training": {"halting": "act", "window": 1, "continue_loss": True},
        "model": {"kind": "recursive", "method": "hrm", "high_cycles": 2, "low_cycles": 2},
    },
    {
        "training": {"halting": "fixed", "window": 1},
        "model": {"kind": "recursive", "method": "eqr", "noise": 0.01, "damping": 0.95, "high_cycles": 1, "low_cycles": 1},
    },
    {"training": {}, "task": WORDS},
]


def after(steps: int) -> Callable[[], str | None]:
    """A signal that is seen before step ``steps + 1`` of the attempt."""
    asked = 0

    def stop() -> str | None:
        nonlocal asked
        asked += 1
        return "SIGTERM" if asked > steps else None

    return stop


def final_tensors(store: Store, cell: Cell, stops: list[int]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Of a run that was stopped after so many steps of each attempt; and its evaluation."""
    store.register(cell_id(cell), cell.model_dump(mode="json"))
    execution = Execution(threads=1, device="cpu", log_every=1)
    halting = cell.training.halting  # type: ignore[union-attr]
    wanted = [("T5", ReasonerEvaluation(T=5, items=6, halting=halting))]
    for steps in [*stops, 10**6]:
        attempt = store.claim(cell_id(cell))
        assert isinstance(attempt, Attempt)
        outcome = run_cell(cell, wanted, execution, attempt, after(steps))
        attempt.end("done" if outcome.status == "done" else "interrupted", step=outcome.step)
    result = attempt.result()
    assert result is not None
    assert result["resumed"] == len(stops)
    found = checkpoint.load(attempt.cell_path / result["weights"])
    tensors = {f"{stem}/{name}": t for stem, content in found.tensors.items() for name, t in content.items()}
    document = json.loads((attempt.cell_path / "evaluations" / "T5.json").read_text())
    return tensors, {name: document[name] for name in ("metrics", "series")}


@pytest.mark.parametrize(
    "parts", MODELS, ids=lambda parts: str(parts.get("model", parts.get("task", {})).get("method", "fprm"))
)
def test_a_stopped_run_ends_as_an_undisturbed_one_bit_for_bit(parts: dict[str, Any], tmp_path: Path) -> None:
    cell = make_cell(parts.get("model"), parts.get("task"), **parts["training"])
    whole, measured = final_tensors(Store(tmp_path / "whole"), cell, [])
    broken, measured_too = final_tensors(Store(tmp_path / "broken"), cell, [3, 1, 4])
    assert whole.keys() == broken.keys()
    assert {"carry/iterate.z", "carry/rows", "carry/next_row", "average/frame.head.weight"} <= whole.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, broken[name]), name
    assert measured == measured_too


def test_a_window_is_k_damped_steps_one_loss_and_one_update() -> None:
    """Against the same written out: the first step of a run, with plain SGD's direction read off the gradients."""
    cell = make_cell(window=3, halt_loss=0.5, optimizer="adamw")
    trainer, task = trainer_of(cell), task_of(cell)
    report = trainer.train_step()
    model = build_reasoner(cell, task)
    batch = task.examples(torch.arange(4), 0)
    source = trainer_of(cell).source.first()
    assert torch.equal(batch.inputs, source.batch.inputs)
    x = model.frame.embed(batch.inputs, model.frame.puzzle_vectors(batch.puzzle_ids))
    state = begin(source.iterate.z, cell.training)  # type: ignore[arg-type]
    for _ in range(3):
        state = advance(state, model.iterate(state.z, x), cell.training)  # type: ignore[arg-type]
    logits, halting = model.decode(state.z)
    losses = answer_loss(logits, batch.targets, -100)
    right = (logits.argmax(-1) == batch.targets).all(-1).double()
    q = halting[:, 0].double()
    loss = (losses + 0.5 * -(right * torch.log(torch.sigmoid(q)) + (1 - right) * torch.log(1 - torch.sigmoid(q)))).mean()
    loss.backward()
    assert report.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
    assert report.grad_norm == pytest.approx(norm, rel=1e-5)
    for name, parameter in model.named_parameters():  # Adam's first step is lr times the sign, after decoupled decay
        expected = parameter.detach()
        if "scaling" not in name:
            expected = expected * (1 - 0.005 * 1e-3)
        gradient = torch.zeros_like(expected) if parameter.grad is None else parameter.grad
        expected = expected - 0.005 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(trainer.parameters[name].detach(), expected, rtol=1e-4, atol=1e-4)


def test_gradient_stops_at_the_window_but_the_state_goes_on() -> None:
    trainer = trainer_of(make_cell(tolerance=1e-9, max_windows=100))
    trainer.train_step()
    assert trainer.slots is not None
    carried = trainer.slots.iterate
    assert not carried.z.requires_grad
    assert carried.count.tolist() == [2] * 4
    trainer.train_step()
    assert trainer.slots.iterate.count.tolist() == [4] * 4
    assert trainer.slots.batch.rows.tolist() == [0, 1, 2, 3]


def test_halted_slots_take_the_next_unused_rows_and_the_others_stay() -> None:
    trainer = trainer_of(make_cell())
    trainer.train_step()
    slots = trainer.slots
    assert slots is not None
    halted = torch.tensor([False, True, False, True])
    object.__setattr__(slots, "halted", halted)
    fresh = trainer.source.refilled(slots)
    assert fresh.batch.rows.tolist() == [0, 4, 2, 5]
    assert fresh.next_row == 6
    assert torch.equal(fresh.iterate.z[0], slots.iterate.z[0])
    assert fresh.iterate.count.tolist() == [2, 0, 2, 0]
    assert fresh.windows.tolist() == [1, 0, 1, 0]
    expected = trainer.source._fill(torch.tensor([5]), 6)
    assert torch.equal(fresh.iterate.z[3], expected.iterate.z[0]), "z_0 is drawn by row, whatever the slot"
    assert torch.equal(fresh.batch.inputs[3], expected.batch.inputs[0])


def test_a_sample_leaves_after_its_last_window() -> None:
    trainer = trainer_of(make_cell(halting="fixed", max_windows=2))
    rows = []
    for _ in range(5):
        trainer.train_step()
        assert trainer.slots is not None
        rows.append(trainer.slots.batch.rows.tolist())
    assert rows == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2 + [[8, 9, 10, 11]]


@pytest.mark.parametrize(("caps", "mean"), [("gamma", 66.68), ("exponential", 72.13)])
def test_drawn_caps_have_the_stated_mean(caps: str, mean: float) -> None:
    source = trainer_of(make_cell(caps=caps, window=1)).source
    drawn = source._caps(torch.arange(20_000)).double()
    assert float(drawn.mean()) == pytest.approx(mean + 0.5, rel=0.02)  # rounded up: half an iteration more


def test_exploration_sometimes_keeps_a_sample_that_wants_to_stop() -> None:
    training = reasoner_parts(make_cell(halting="act", max_windows=16))[1]
    rows = torch.arange(20_000)
    first, second = (fewest_windows(training, 0, rows, torch.full_like(rows, window)) for window in (1, 2))
    for fewest in (first, second):
        assert float((fewest > 1).double().mean()) == pytest.approx(0.1, abs=0.01)
        assert set(fewest.tolist()) == set(range(1, 17))
    held = (first > 1) & (second > 1)
    assert float(held.double().mean()) == pytest.approx(0.01, abs=0.004), "drawn anew after each window"


@pytest.mark.parametrize(("windows", "next_value"), [(0, 2.0), (1, 2.0), (2, -1.0)])
def test_hrm_expects_of_going_on_the_better_choice_of_the_next_step_and_at_the_last_window_its_halting_alone(
    monkeypatch: pytest.MonkeyPatch, windows: int, next_value: float
) -> None:
    model = {"kind": "recursive", "method": "hrm"}
    trainer = trainer_of(make_cell(model, halting="act", window=1, continue_loss=True, max_windows=3))
    slots = trainer.source.first()
    slots = replace(slots, windows=torch.full_like(slots.windows, windows))
    rows = len(slots.windows)
    following = torch.tensor([[-1.0, 2.0]]).expand(rows, 2)  # of the next step: stopping is worth less than going on
    monkeypatch.setattr(trainer.model, "decode", lambda _z: (torch.zeros(()), following))
    halting, right = torch.tensor([[0.0, 3.0]]).expand(rows, 2), torch.zeros(rows, dtype=torch.bool)
    x = trainer.model.frame.embed(slots.batch.inputs, trainer.model.frame.puzzle_vectors(slots.batch.puzzle_ids))
    loss = trainer._halt_loss(slots, slots.iterate, x, halting, right)
    target = 1.0 / (1.0 + math.exp(-next_value))
    expected = math.log(2.0) + math.log(1.0 + math.exp(-3.0)) + 3.0 * (1.0 - target)
    torch.testing.assert_close(loss, torch.full_like(loss, expected), rtol=1e-6, atol=1e-6)


def test_the_attractors_block_learns_at_half_the_rate_and_is_not_decayed() -> None:
    model = {"kind": "recursive", "method": "attractor", "layers": 1, "convolution": "none"}
    trainer = trainer_of(make_cell(model, halting="fixed", window=1, warmup=2, lr=0.25, weight_decay=0.5))
    trainer.train_step()
    rates = {
        name: (group["lr"], group["weight_decay"])
        for group in trainer.optimizer.param_groups
        for name, parameter in trainer.parameters.items()
        if any(parameter is member for member in group["params"])
    }
    assert set(rates) == set(trainer.parameters)
    assert {name.split(".")[0] for name, rate in rates.items() if rate == (0.0625, 0.0)} == {"blocks"}
    assert {rate for name, rate in rates.items() if not name.startswith("blocks.")} == {(0.125, 0.5)}


def test_puzzle_embeddings_move_by_the_sign_of_their_gradient() -> None:
    cell = make_cell(puzzle_lr=0.25, puzzle_weight_decay=0.5, warmup=0)
    trainer = trainer_of(cell)
    table = trainer.model.frame.puzzles
    assert table is not None
    table.fill_(0.5)
    trainer.train_step()
    moved = set(table[0].tolist())
    assert moved <= {0.5 * 0.875 - 0.25, 0.5 * 0.875 + 0.25, 0.5 * 0.875}
    assert len(moved) > 1


def test_the_average_is_exponential_over_updates() -> None:
    cell = make_cell(ema=0.9)
    trainer = trainer_of(cell)
    name = "loop.layers.0.mlp.down.weight"
    expected = trainer.parameters[name].detach().clone()
    for _ in range(3):
        trainer.train_step()
        expected = 0.9 * expected + 0.1 * trainer.parameters[name].detach()
    torch.testing.assert_close(trainer.average[name], expected)


def test_an_exploding_loop_is_a_diverged_run() -> None:
    trainer = trainer_of(make_cell({"residual_scale": "none"}, lr=1e30, window=4, steps=20))

    def train() -> None:
        for _ in range(20):
            trainer.train_step()

    with pytest.raises(Diverged, match=r"is (nan|inf) at step"):
        train()


def test_noise_follows_from_the_row_and_the_number_of_the_draw_alone() -> None:
    model = {"kind": "recursive", "method": "eqr", "noise": 0.01, "high_cycles": 1, "low_cycles": 2}
    trainer = trainer_of(make_cell(model, halting="fixed"))

    def drawn(rows: list[int], count: list[int], call: int) -> Tensor:
        draw = noise_source(trainer.model, 3, randomness.NOISE, torch.tensor(rows), torch.tensor(count), 5)
        assert draw is not None
        return draw(call)

    both = drawn([7, 4], [0, 2], 1)
    assert torch.equal(both[1], drawn([4], [2], 1)[0]), "whatever slot the sample is in"
    assert not torch.equal(both[1], drawn([4], [1], 1)[0]), "another iteration draws anew"
    assert not torch.equal(both[1], drawn([4], [2], 0)[0]), "and so does another call of the network"
    assert torch.equal(drawn([4], [2], 0), drawn([4], [1], 3)), "three calls an iteration, numbered through"
    many = drawn(list(range(500)), [0] * 500, 0)
    assert float(many.std()) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("wanted", [False, True])
def test_compile_is_asked_for_exactly_where_the_execution_says_so(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiled(function: Any) -> Any:
        asked.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    cell = make_cell()
    trainer = ReasonerTrainer(cell, task_of(cell), Execution(threads=1, device="cpu", compile=wanted), CPU)
    assert asked == ([trainer.model.iterate] if wanted else [])


def test_bfloat16_trains_float32_weights() -> None:
    trainer = trainer_of(make_cell({"kind": "recursive", "method": "hrm"}, dtype="bfloat16", halting="act", continue_loss=True))
    wide = trainer_of(make_cell({"kind": "recursive", "method": "hrm"}, halting="act", continue_loss=True))
    first, second = trainer.train_step().loss, wide.train_step().loss
    assert first != second
    assert first == pytest.approx(second, rel=0.1)
    assert {p.dtype for p in trainer.parameters.values()} == {torch.float32}


def test_weights_of_other_data_are_refused() -> None:
    cell = make_cell()
    model = build_reasoner(cell, task_of(cell))
    weights = dict(model.state_dict()) | {"frame.puzzles": torch.zeros(5, 8)}
    with pytest.raises(StoreError, match="the weights know 5 puzzle identifiers and the task has 1"):
        load_reasoner(model, weights)


def test_adam_atan2_follows_its_formula() -> None:
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = AdamATan2([parameter], lr=0.1, betas=(0.9, 0.95), weight_decay=0.5)
    value, m, v = parameter.detach().clone(), torch.zeros(3).double(), torch.zeros(3).double()
    for t in range(1, 5):
        gradient = torch.tensor([0.3 * t, -1e-9, 2.0 - t], dtype=torch.float64)
        parameter.grad = gradient
        optimizer.step()
        value = value * (1 - 0.1 * 0.5)
        m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
        value = value - 0.1 / (1 - 0.9**t) * torch.atan2(m, torch.sqrt(v / (1 - 0.95**t)))
        torch.testing.assert_close(parameter.detach(), value)


def test_a_small_reasoner_learns_prefix_products() -> None:
    """Z2, four letters: from one right word in sixteen to nearly all, in a few seconds."""
    task = {"kind": "state_tracking", "group": "Z2", "length": 4, "test_lengths": (4,)}
    training = {"steps": 150, "batch": 32, "window": 4, "max_windows": 4, "lr": 5e-3, "warmup": 10, "halt_loss": 0.0}
    cell = make_cell({"width": 16, "alpha_1": 0.75, "alpha_2": 0.25}, task, **training)
    trainer = trainer_of(cell)
    accuracy = [trainer.train_step().exact_accuracy for _ in range(150)]
    assert sum(accuracy[:5]) / 5 < 0.3
    assert sum(accuracy[-10:]) / 10 > 0.9
