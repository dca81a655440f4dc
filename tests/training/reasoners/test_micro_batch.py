"""A window computed part by part is the window: losses, weights, states, whatever the parts; and who may ask for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from looprepro.config.cell import Cell, Execution, check_execution
from looprepro.config.identity import cell_id
from looprepro.files.errors import ConfigError
from looprepro.store import Store
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.reasoner import ReasonerTrainer, WindowReport
from looprepro.training.reasoners import task_of
from looprepro.worker import run_manifest

CPU = torch.device("cpu")
SUDOKU = {"kind": "sudoku", "side": 4, "empty": (3, 6), "train_items": 8, "augmentations": 2}
ARC = {"kind": "arc", "version": "arc1", "side": 6, "tasks": 2, "augmentations": 2}
WORDS = {"kind": "state_tracking", "group": "S3", "length": 4, "test_lengths": (6,)}
SMALL = {"width": 8, "heads": 2, "layers": 1}
ACT = {"halting": "act", "window": 1, "exploration": 0.5}
BATCH, STEPS = 7, 4

CASES: dict[str, dict[str, dict[str, Any]]] = {
    "FPRM": {
        "model": {"kind": "fixed_point", "prefix": 2, "convolution": "2d"},
        # A tolerance between the residuals of the first samples, so that some leave early and others stay.
        "training": {"window": 2, "tolerance": 3.7, "clip": 0.1, "halt_loss": 0.5},
    },
    "words": {
        "task": WORDS,
        "model": {"kind": "fixed_point", "prefix": 0, "positions": "none", "convolution": "1d"},
        "training": {"window": 2, "caps": "gamma", "optimizer": "adam_atan2"},
    },
    "TRM": {"model": {"kind": "recursive", "method": "trm", "prefix": 2, "high_cycles": 2, "low_cycles": 1}, "training": ACT},
    "HRM": {
        "model": {"kind": "recursive", "method": "hrm", "prefix": 1, "high_cycles": 2, "low_cycles": 2},
        "training": ACT | {"continue_loss": True},
    },
    "URM": {"model": {"kind": "recursive", "method": "urm", "prefix": 2, "high_cycles": 2, "low_cycles": 2}, "training": ACT},
    "EqR": {
        "model": {
            "kind": "recursive",
            "method": "eqr",
            "prefix": 0,
            "mixer": "mlp",
            "positions": "none",
            "damping": 0.95,
            "noise": 0.01,
            "high_cycles": 2,
            "low_cycles": 1,
        },
        "training": {"halting": "fixed", "window": 1},
    },
    "Attractor": {
        "model": {"kind": "recursive", "method": "attractor", "prefix": 2, "solver_iterations": 6},
        "training": {"halting": "fixed", "window": 1, "max_windows": 1},
    },
    "ARC": {
        "task": ARC,
        "model": {"kind": "fixed_point", "prefix": 2, "convolution": "1d"},
        "training": {"window": 2, "puzzle_lr": 1e-2, "batch": 5},
    },
    "bridge": {
        "task": WORDS,
        "model": {
            "kind": "looped_transformer",
            "width": 16,
            "heads": 2,
            "prelude_layers": 1,
            "core_layers": 1,
            "coda_layers": 1,
            "injection": {"method": "conformal", "groups": 2},
        },
        "training": {"window": 2, "halt_loss": 0.0},
    },
}

WORD_CELL = Cell.model_validate(
    {
        "task": {"kind": "group_words", "group": "A5", "length": 8},
        "model": {"width": 16, "heads": 2, "injection": {"method": "diagonal"}},
        "training": {"steps": 10},
        "seed": 0,
    }
)


def make_cell(name: str, **training: Any) -> Cell:
    case = CASES[name]
    small = {} if name == "bridge" else SMALL
    defaults = {"kind": "windows", "steps": 10, "batch": BATCH, "warmup": 2, "lr": 1e-2, "max_windows": 3, "ema": 0.5}
    return Cell.model_validate(
        {
            "task": case.get("task", SUDOKU),
            "model": small | case["model"],
            "training": defaults | {"dtype": "float64"} | case["training"] | training,
            "seed": 3,
        }
    )


def trainer_of(cell: Cell, micro_batch: Any) -> ReasonerTrainer:
    return ReasonerTrainer(cell, task_of(cell), Execution(threads=1, device="cpu", micro_batch=micro_batch), CPU)


def trained(cell: Cell, micro_batch: Any) -> tuple[list[WindowReport], dict[str, Tensor]]:
    trainer = trainer_of(cell, micro_batch)
    reports = [trainer.train_step() for _ in range(STEPS)]
    return reports, everything(trainer)


def everything(trainer: ReasonerTrainer) -> dict[str, Tensor]:
    return {f"{stem}/{name}": t for stem, content in trainer.tensors().items() for name, t in content.items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            # Residuals and step sizes are float32 whatever the arithmetic.
            close = 1e-9 if tensor.dtype == torch.float64 else 1e-6
            torch.testing.assert_close(found[name], tensor, rtol=close, atol=close, msg=name)
        else:
            assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_a_window_change_rounding_only(name: str) -> None:
    """One by one, and in parts of three with a smaller last one: reports, weights, moments, average and carry of four steps."""
    cell = make_cell(name)
    plain, expected = trained(cell, None)
    for micro_batch in (1, 3):
        reports, tensors = trained(cell, micro_batch)
        for report, other in zip(reports, plain, strict=True):
            assert report.record() == pytest.approx(other.record(), rel=1e-6, abs=1e-6)
            assert (report.loss, report.grad_norm) == pytest.approx((other.loss, other.grad_norm), rel=1e-9)
        assert_same(tensors, expected)
    if name == "ARC":
        assert int((expected["weights/frame.puzzles"] != 0).any(dim=1).sum()) > 1, "several puzzles have moved"
    if name == "FPRM":
        assert any(0.0 < report.halted < 1.0 for report in plain), "some samples halt by their residual, others go on"


@pytest.mark.parametrize("name", ["FPRM", "HRM"])
def test_one_part_is_the_plain_window_bit_for_bit(name: str) -> None:
    cell = make_cell(name, dtype="float32")
    plain, expected = trained(cell, None)
    for micro_batch in (BATCH, 10 * BATCH, "auto"):
        reports, tensors = trained(cell, micro_batch)
        assert reports == plain
        assert all(torch.equal(tensors[key], tensor) for key, tensor in expected.items())


@pytest.mark.parametrize("name", ["FPRM", "EqR"])
def test_a_run_goes_on_from_its_checkpoint_in_other_parts(name: str) -> None:
    cell = make_cell(name)
    _, expected = trained(cell, None)
    first = trainer_of(cell, 2)
    for _ in range(STEPS // 2):
        first.train_step()
    saved = {stem: {key: t.clone() for key, t in content.items()} for stem, content in first.tensors().items()}
    second = trainer_of(cell, 5)
    second.restore(Checkpoint(None, first.step, 0.0, saved, {}))  # type: ignore[arg-type]
    while second.step < STEPS:
        second.train_step()
    assert_same(everything(second), expected)


def test_each_part_is_computed_alone_and_the_last_may_be_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(make_cell("FPRM"), 3)
    rows, updates = [], []
    iterate, step = trainer.model.iterate, trainer.optimizer.step
    monkeypatch.setattr(trainer, "_iterate", lambda z, x, draw: rows.append(len(z)) or iterate(z, x, draw))  # type: ignore[func-returns-value]
    monkeypatch.setattr(trainer.optimizer, "step", lambda: updates.append(len(rows)) or step())  # type: ignore[func-returns-value]
    trainer.train_step()
    assert rows == [3, 3, 3, 3, 1, 1], "two iterations of each part before the next part begins"
    assert updates == [6], "one update of all"


def test_bfloat16_parts_stay_near_the_whole() -> None:
    """Autocast keeps its copies of the weights for one part at a time; gradients add up in float32."""
    cell = make_cell("TRM", dtype="bfloat16")
    whole, parts = (trainer_of(cell, micro_batch) for micro_batch in (None, 2))
    first, second = whole.train_step(), parts.train_step()
    assert second.loss == pytest.approx(first.loss, rel=1e-3)
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=2e-2)
    gradients = {name: p.grad for name, p in parts.parameters.items() if p.grad is not None}
    assert gradients.keys() == {name for name, p in whole.parameters.items() if p.grad is not None}
    for name, gradient in gradients.items():
        expected = whole.parameters[name].grad
        assert expected is not None
        assert float((gradient - expected).norm()) <= 0.05 * float(expected.norm()) + 1e-6, name


def test_only_reasoners_are_cut_into_parts() -> None:
    check_execution(WORD_CELL, Execution())
    check_execution(make_cell("TRM"), Execution(micro_batch=4))
    with pytest.raises(ConfigError, match="cuts the batch of a reasoner, and what learns group_words is none"):
        check_execution(WORD_CELL, Execution(micro_batch="auto"))


def run_by_worker(cell: Cell, folder: Path, micro_batch: Any) -> tuple[Store, str]:
    """Through the worker, as any cell is; nothing is measured afterwards."""
    store, identity = Store(folder / "runs"), cell_id(cell)
    execution = Execution(threads=1, device="cpu", micro_batch=micro_batch).model_dump(mode="json")
    cells = [{"id": identity, "config": cell.model_dump(mode="json"), "evaluations": []}]
    run_manifest({"store": str(store.root), "execution": execution, "cells": cells}, redirect=False)
    return store, identity


@pytest.mark.parametrize(("micro_batch", "slots"), [(3, 3), ("auto", BATCH), (None, BATCH)])
def test_an_attempt_records_what_was_asked_for_and_the_result_how_many_that_was(
    tmp_path: Path, micro_batch: Any, slots: int
) -> None:
    store, identity = run_by_worker(make_cell("FPRM", steps=2), tmp_path, micro_batch)
    result = store.reading(identity).result
    assert result is not None
    assert (result["status"], result["micro_batch"]) == ("done", slots)
    provenance = json.loads((store.layout.attempts(identity) / "0001" / "provenance.json").read_text())
    assert provenance.get("micro_batch") == micro_batch


def test_a_worker_refuses_parts_of_what_is_no_reasoner(tmp_path: Path) -> None:
    store, identity = run_by_worker(WORD_CELL, tmp_path, 4)
    presence = store.reading(identity).presence
    assert (presence.status, presence.step) == ("failed", 0)
    assert "cuts the batch of a reasoner" in presence.cause
