"""Measurements of reasoners: per item, independent of the block, with what halting and difficulty say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from looprepro import randomness
from looprepro.config.cell import Cell, ReasonerEvaluation
from looprepro.models.fixed_point.reasoner import FixedPointReasoner, Reasoner
from looprepro.tasks.puzzles.task import PuzzleBatch, PuzzleTask
from looprepro.tasks.task import Count
from looprepro.training import reasoner_evaluation
from looprepro.training.reasoner import build_reasoner
from looprepro.training.reasoner_evaluation import Measurement, Reader, difficulty_values, readout_marks
from looprepro.training.reasoners import task_of
from looprepro.training.slots import counted_positions, initial_states

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_cell(model: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **training: Any) -> Cell:
    sudoku = {"kind": "sudoku", "side": 4, "empty": (3, 6), "train_items": 8, "augmentations": 2}
    base = {"kind": "fixed_point", "width": 16, "heads": 2, "layers": 2, "prefix": 2, "convolution": "1d"}
    return Cell.model_validate(
        {"task": task or sudoku, "model": base | (model or {}), "training": {"kind": "windows"} | training, "seed": 1}
    )


def measured(cell: Cell, **keys: Any) -> tuple[Measurement, dict[str, Any]]:
    evaluation = ReasonerEvaluation(**({"T": 40, "items": 24, "gamma": 0.9} | keys))
    task = task_of(cell)
    measurement = Measurement(build_reasoner(cell, task).eval(), task, cell, evaluation, CPU)
    return measurement, measurement.document()


def per_item(measurement: Measurement, name: str) -> list[float]:
    return torch.cat(measurement.tally.per_item[name]).tolist()


def test_a_longer_evaluation_begins_with_the_items_of_a_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a fixed block shape the shared items are the same bits, whoever fills the rest of the block."""
    monkeypatch.setitem(reasoner_evaluation.BLOCKS, "cpu", 8)
    cell = make_cell()
    short, _ = measured(cell, items=11)
    long, _ = measured(cell, items=16)
    assert len(set(per_item(short, "iterations"))) > 1
    for name in ("iterations", "residual", "confidence", "answers"):
        assert per_item(short, name) == per_item(long, name)[:11], name


def test_every_block_has_one_shape_the_last_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reasoner_evaluation.BLOCKS, "cpu", 8)
    cell = make_cell()
    task = task_of(cell)
    model = build_reasoner(cell, task)
    shapes, plain = set(), model.iterate

    def noted(z: torch.Tensor, *arguments: Any) -> torch.Tensor:
        shapes.add(tuple(z.shape))
        return plain(z, *arguments)

    model.iterate = noted  # type: ignore[method-assign]
    document = Measurement(model, task, cell, ReasonerEvaluation(T=2, items=11), CPU).document()
    assert shapes == {(8, 18, 16)}
    assert document["metrics"]["exact_accuracy"]["items"] == 11


def test_batch_wide_halting_depends_on_the_block_and_freezing_does_not() -> None:
    cell = make_cell()
    frozen, _ = measured(cell)
    whole, _ = measured(cell, freeze=False)
    assert len(set(per_item(frozen, "iterations"))) > 1
    assert set(per_item(whole, "iterations")) == {max(per_item(whole, "iterations"))}


def test_metrics_and_series_say_what_the_items_did() -> None:
    cell = make_cell()
    measurement, document = measured(cell)
    metrics, series = document["metrics"], document["series"]
    iterations = per_item(measurement, "iterations")
    assert metrics["iterations"] == {"value": pytest.approx(sum(iterations) / 24), "items": 24}
    assert metrics["effective_layers"]["value"] == pytest.approx(2 * metrics["iterations"]["value"])
    assert series["exact_accuracy_by_layers@T=40"]["x"] == [2.0 * mark for mark in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40)]
    assert series["exact_accuracy_by_layers@T=40"]["y"][-1] == metrics["exact_accuracy"]["value"]
    assert series["token_accuracy_by_layers@T=40"]["y"][-1] == pytest.approx(metrics["token_accuracy"]["value"])
    assert sum(series["items_by_difficulty@T=40"]["y"]) == 24
    by_hand: dict[float, list[float]] = {}
    for difficulty, layers in zip(per_item(measurement, "difficulty"), per_item(measurement, "effective_layers"), strict=True):
        by_hand.setdefault(difficulty, []).append(layers)
    drawn = series["effective_layers_by_difficulty@T=40"]
    assert drawn["x"] == sorted(by_hand)
    assert drawn["y"] == pytest.approx([sum(by_hand[x]) / len(by_hand[x]) for x in sorted(by_hand)])


def test_activation_norms_are_those_of_the_layers() -> None:
    cell = make_cell()
    measurement, document = measured(cell, halting="fixed", T=3)
    model, task = build_reasoner(cell, task_of(cell)), task_of(cell)
    assert isinstance(model, FixedPointReasoner)
    batch = task.evaluation_examples(torch.arange(24))
    z = initial_states(model, 1, randomness.EVALUATION_STATE, torch.arange(24), 16, CPU)
    expected = []
    with torch.no_grad():
        x = model.frame.embed(batch.inputs, model.frame.puzzle_vectors(batch.puzzle_ids))
        for _ in range(3):
            z = model.loop.convolution(z)  # type: ignore[misc]
            scale = model.loop.scaling(z)
            z = scale.a2 * z + scale.b2 * x
            for layer in model.loop.layers:
                z = layer(z, model.loop.rope, scale)
                expected.append(float(z.norm(dim=-1).mean()))
    assert document["series"]["activation_norm@T=3"]["x"] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert document["series"]["activation_norm@T=3"]["y"] == pytest.approx(expected, rel=1e-4)
    assert measurement.tally.norms == pytest.approx(expected, rel=1e-4)


def test_norms_of_an_exploding_loop_end_before_the_first_that_is_not_finite() -> None:
    cell = make_cell()
    task = task_of(cell)
    measurement = Measurement(build_reasoner(cell, task), task, cell, ReasonerEvaluation(T=5, items=4), CPU)
    reader = Reader(measurement, task.evaluation_examples(torch.arange(4)))
    for size in (1.0, 2.0, float("inf"), 1.0):
        if record := reader.probe():
            record(torch.full((4, 18, 16), size))
    assert measurement.tally.norms == [4.0, 8.0], "16 coordinates of 1, then of 2"


def test_an_overflowed_state_has_no_confidence_and_does_not_stop_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are not finite are no JSON: the evaluation would be lost after the training."""
    cell = make_cell()
    task = task_of(cell)
    model = build_reasoner(cell, task)
    plain = model.decode

    def decode(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, halting = plain(z)
        return logits, halting * float("nan")

    monkeypatch.setattr(model, "decode", decode)
    document = Measurement(model, task, cell, ReasonerEvaluation(T=3, items=8), CPU).document()
    assert "confidence" not in document["metrics"]
    json.dumps(document, allow_nan=False)


def trained_to_stop(cell: Cell, after: int) -> tuple[Reasoner, PuzzleTask]:
    """A model whose halting head says stop from the ``after``-th decode on."""
    task = task_of(cell)
    model = build_reasoner(cell, task)
    calls = 0
    plain = model.decode

    def decode(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        logits, halting = plain(z)
        return logits, torch.full_like(halting, 1.0 if calls >= after else -1.0)

    model.decode = decode  # type: ignore[method-assign]
    return model, task


def test_act_halts_where_the_head_says_so_and_fixed_does_not_ask_it() -> None:
    cell = make_cell({"kind": "recursive", "method": "trm", "low_cycles": 1, "convolution": "none"}, halting="act")
    for halting, expected in (("act", 1.0), ("fixed", 4.0)):
        model, task = trained_to_stop(cell, 1)
        evaluation = ReasonerEvaluation(T=4, items=6, halting=halting)
        document = Measurement(model, task, cell, evaluation, CPU).document()
        assert document["metrics"]["iterations"]["value"] == expected
        assert document["metrics"]["effective_layers"]["value"] == expected * 3 * 2 * 2  # H (L + 1) layers
        assert document["metrics"]["halted"]["value"] == (1.0 if halting == "act" else 0.0)


def test_what_was_given_up_has_halted_and_not_converged() -> None:
    cell = make_cell()
    found = {}
    for tolerance in (1e-30, 1e30):
        _, document = measured(cell, halting="residual", T=6, min_step=2.0, tolerance=tolerance)
        found[tolerance] = {name: document["metrics"][name]["value"] for name in ("halted", "converged")}
    assert found == {1e-30: {"halted": 1.0, "converged": 0.0}, 1e30: {"halted": 1.0, "converged": 1.0}}


def test_what_pools_over_items_sees_all_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reasoner_evaluation.BLOCKS, "cpu", 8)
    cell = make_cell()
    task = task_of(cell)
    seen = []

    def pooled(answers: torch.Tensor, confidence: torch.Tensor, rows: torch.Tensor) -> dict[str, Count]:
        seen.append((answers.shape, confidence.shape, rows.tolist()))
        return {"best": Count(torch.tensor(3.0, dtype=torch.float64), 1)}

    task.pooled_metrics = pooled  # type: ignore[method-assign]
    evaluation = ReasonerEvaluation(T=2, items=11)
    document = Measurement(build_reasoner(cell, task), task, cell, evaluation, CPU).document()
    assert seen == [((11, 16), (11,), list(range(11)))]
    assert document["metrics"]["best"] == {"value": 3.0, "items": 1}


def test_positions_behind_the_last_scored_one_do_not_count_in_a_causal_model() -> None:
    targets = torch.tensor([[5, -100, 4, -100], [1, 1, 1, 1]])
    batch = PuzzleBatch(torch.zeros_like(targets), targets, torch.zeros(2), torch.zeros(2), torch.arange(2))
    mask = counted_positions(batch, True, 1, 1)
    assert mask is not None
    assert mask.tolist() == [[True, True, True, True, False], [True] * 5]
    assert counted_positions(batch, False, 1, 1) is None
    of_two = counted_positions(batch, True, 0, 2)
    assert of_two is not None
    assert of_two.shape == (2, 1, 4)


def test_a_short_word_halts_as_early_beside_long_ones_as_alone() -> None:
    """Padding behind its last letter changes no iteration count: an answer of a causal model cannot depend on it."""
    words = {"kind": "state_tracking", "group": "S3", "length": 4}
    counts = []
    for lengths in ((3,), (3, 12)):
        cell = make_cell({"prefix": 0, "positions": "none"}, words | {"test_lengths": lengths})
        measurement, _ = measured(cell, items=8, tolerance=0.01)
        found = dict(zip(per_item(measurement, "rows"), per_item(measurement, "iterations"), strict=True))
        counts.append([found[row] for row in range(0, 8, 2)])
    assert counts[0] == counts[1]
    assert len(set(counts[0])) > 1


def test_marks_and_bins() -> None:
    assert readout_marks(1) == [1]
    assert readout_marks(10) == [1, 2, 3, 4, 6, 8, 10]
    values, place = difficulty_values(torch.tensor([3.0, 1.0, 3.0]))
    assert values == [1.0, 3.0]
    assert place.tolist() == [1, 0, 1]
    values, place = difficulty_values(torch.arange(64, dtype=torch.float64))
    assert len(values) == 16
    assert torch.bincount(place).sum() == 64
    assert values[0] == pytest.approx(63 / 32)
