"""Costs of reasoners: against torch's own counts where they can be had, and the paper's setting within 40 GB."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from looprepro.config.cell import Cell, Execution, ReasonerEvaluation
from looprepro.config.costs import memory_bytes, train_flops
from looprepro.config.reasoner_formulas import (
    AUTO_BYTES,
    activation_bytes,
    evaluation_flops,
    held_bytes,
    slots_at_once,
    train_flops_per_step,
)
from looprepro.models.fixed_point.stablemax import answer_loss
from looprepro.training.reasoner import ReasonerTrainer
from looprepro.training.reasoner_evaluation import evaluate_reasoner
from looprepro.training.reasoners import task_of

SUDOKU = {"kind": "sudoku", "train_items": 8, "augmentations": 0, "empty": (3, 6)}
FPRM = {"kind": "fixed_point", "convolution": "2d", "alpha_1": 0.75, "alpha_2": 0.25}


def make_cell(model: dict[str, Any], task: dict[str, Any] | None = None, **training: Any) -> Cell:
    return Cell.model_validate(
        {"task": task or SUDOKU, "model": model, "training": {"kind": "windows", "steps": 10} | training, "seed": 0}
    )


def trainer_of(cell: Cell, micro_batch: int | None = None) -> ReasonerTrainer:
    torch.set_num_threads(1)
    execution = Execution(threads=1, device="cpu", micro_batch=micro_batch)
    return ReasonerTrainer(cell, task_of(cell), execution, torch.device("cpu"))


def saved_bytes(cell: Cell) -> int:
    """Bytes of all distinct storages that autograd keeps for the backward pass of one window, parameters not counted."""
    trainer = trainer_of(cell)
    slots = trainer.source.first()
    own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            kept.setdefault(place, tensor)  # held, so that its place is not used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        bfloat16 = cell.training.dtype == "bfloat16"
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            iterate, _ = trainer._window(slots, trainer.model.frame.puzzle_vectors(slots.batch.puzzle_ids))
            logits, _ = trainer.model.decode(iterate.z)
        answer_loss(logits, slots.batch.targets, -100).mean()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


class Saved:
    """A tensor that autograd keeps, for as long as it keeps it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def peak_saved_bytes(cell: Cell, micro_batch: int | None) -> int:
    """The most bytes of distinct storages that autograd keeps at any time of a training step, parameters not counted."""
    trainer = trainer_of(cell, micro_batch)
    own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    users: dict[int, int] = {}
    live = peak = 0

    def forget(place: int, size: int) -> None:
        nonlocal live
        users[place] -= 1
        live -= 0 if users[place] else size

    def pack(tensor: torch.Tensor) -> torch.Tensor | Saved:
        nonlocal live, peak
        place, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        if place in own:
            return tensor
        saved = Saved(tensor)
        users[place] = users.get(place, 0) + 1
        live += size if users[place] == 1 else 0
        peak = max(peak, live)
        weakref.finalize(saved, forget, place, size)
        return saved

    def unpack(saved: torch.Tensor | Saved) -> torch.Tensor:
        return saved.tensor if isinstance(saved, Saved) else saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        trainer.train_step()
    assert live < 0.01 * peak
    return peak


def test_a_training_step_of_the_paper_on_sudoku_extreme_fits_40_gb() -> None:
    """7M parameters, batch 768, k = 6, bfloat16 autocast: the paper's one 40 GB GPU."""
    needed = memory_bytes(make_cell(FPRM, batch=768, window=6, dtype="bfloat16"))
    assert needed is not None
    assert 20e9 < needed < 30e9
    in_float32 = memory_bytes(make_cell(FPRM, batch=768, window=6))
    assert in_float32 is not None
    assert in_float32 > 40e9  # which is why the released runs use bfloat16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("micro_batch", [None, 192])
def test_on_a_gpu_the_paper_s_training_step_stays_near_the_formula_and_below_40_gb(micro_batch: int | None) -> None:
    """Four windows, so that the optimiser's moments are there; what backward allocates beside what it reads is not counted."""
    cell = make_cell(FPRM, batch=768, window=6, dtype="bfloat16", ema=0.999)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    execution = Execution(threads=1, device="cuda", micro_batch=micro_batch)
    trainer = ReasonerTrainer(cell, task_of(cell), execution, torch.device("cuda"))
    for _ in range(4):
        trainer.train_step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    assert peak < 40e9
    assert peak == pytest.approx(memory_bytes(cell, execution), rel=1 / 3)


def test_the_memory_formula_at_the_paper_size_and_batch_8() -> None:
    cell = make_cell(FPRM, batch=8, window=6, dtype="bfloat16")
    assert saved_bytes(cell) == pytest.approx(activation_bytes(cell), rel=0.1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model",
    [
        FPRM,
        {"kind": "fixed_point", "norm": "post", "residual_scale": "none", "positions": "none"},
        {"kind": "fixed_point", "norm": "peri"},
        {"kind": "recursive", "method": "trm", "high_cycles": 2, "low_cycles": 2},
        {"kind": "recursive", "method": "urm", "high_cycles": 2, "low_cycles": 2},
        {"kind": "recursive", "method": "trm", "mixer": "mlp", "high_cycles": 2, "low_cycles": 2, "positions": "none"},
    ],
    ids=str,
)
def test_the_memory_formula_on_smaller_models(model: dict[str, Any], dtype: str) -> None:
    cell = make_cell({"width": 64, "heads": 4} | model, batch=8, window=2, dtype=dtype)
    assert saved_bytes(cell) == pytest.approx(activation_bytes(cell), rel=0.15)


@pytest.mark.parametrize("micro_batch", [None, 4, 3])
@pytest.mark.parametrize("kind", ["FPRM", "TRM"])
def test_the_memory_formula_when_the_batch_passes_in_parts(kind: str, micro_batch: int | None) -> None:
    """One part at a time is held: the graph of the part before is gone."""
    trm = {"kind": "recursive", "method": "trm", "high_cycles": 2, "low_cycles": 2}
    cell = make_cell({"width": 64, "heads": 4} | (FPRM if kind == "FPRM" else trm), batch=8, window=2, dtype="bfloat16")
    assert slots_at_once(cell, Execution(micro_batch=micro_batch)) == (micro_batch or 8)
    assert peak_saved_bytes(cell, micro_batch) == pytest.approx(activation_bytes(cell, micro_batch), rel=0.15)


def test_states_of_all_slots_are_held_however_few_pass_at_once() -> None:
    cell = make_cell(FPRM, batch=768, window=6, dtype="bfloat16", ema=0.999)
    found = [memory_bytes(cell, Execution(micro_batch=slots)) for slots in (None, 384, 1)]
    states = 4 * 768 * (16 + 81) * 512  # float32; before and after the window, and once more where a copy is made
    held = 2 * states + 6_833_666 * 22 + 4 * 512
    assert held_bytes(cell) == pytest.approx(held, rel=1e-3)
    assert found == [
        pytest.approx(held + more, rel=1e-3) for more in (activation_bytes(cell), activation_bytes(cell) / 2, states)
    ]


@pytest.mark.parametrize(("batch", "parts"), [(768, 1), (1024, 2), (2305, 3)])
def test_auto_cuts_into_as_few_equal_parts_as_fit(batch: int, parts: int) -> None:
    cell, auto = make_cell(FPRM, batch=batch, window=6, dtype="bfloat16"), Execution(micro_batch="auto")
    slots = slots_at_once(cell, auto)
    assert slots == -(-batch // parts)
    needed = memory_bytes(cell, auto)
    assert needed is not None
    assert needed <= AUTO_BYTES
    if parts > 1:
        fewer = memory_bytes(cell, Execution(micro_batch=-(-batch // (parts - 1))))
        assert fewer is not None
        assert fewer > AUTO_BYTES


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (FPRM, {}),
        ({"kind": "recursive", "method": "trm", "high_cycles": 2, "low_cycles": 2}, {"halting": "act", "window": 1}),
        ({"kind": "recursive", "method": "trm", "mixer": "mlp", "positions": "none"}, {"halting": "act", "window": 1}),
        (
            {"kind": "recursive", "method": "hrm", "high_cycles": 2, "low_cycles": 2},
            {"halting": "act", "window": 1, "continue_loss": True},
        ),
        ({"kind": "recursive", "method": "urm", "high_cycles": 2, "low_cycles": 2}, {"halting": "act", "window": 1}),
    ],
    ids=lambda value: str(value.get("method", "")),
)
def test_flops_against_torchs_own_counter(model: dict[str, Any], training: dict[str, Any]) -> None:
    """torch counts matrix products, in the backward pass too; attention is made of them here; convolutions are taken out."""
    cell = make_cell({"width": 32, "heads": 2, "layers": 1} | model, batch=4, **({"window": 2} | training))
    trainer = trainer_of(cell)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        trainer.train_step()
    counted = sum(n for op, n in counter.get_flop_counts()["Global"].items() if "convolution" not in str(op))
    assert train_flops_per_step(cell) == pytest.approx(counted, rel=0.1)
    assert train_flops(cell) == pytest.approx(10 * train_flops_per_step(cell))


def test_evaluation_costs_every_iteration_of_every_budget() -> None:
    """With a criterion that is never met, torch's own counter sees them all; readouts at the marks are beside the formula."""
    cell = make_cell({"width": 32, "heads": 2, "layers": 1, "kind": "fixed_point"})
    four, eight = (ReasonerEvaluation(T=cap, items=8, halting="fixed") for cap in (4, 8))
    assert evaluation_flops(cell, [four, eight]) == pytest.approx(3 * evaluation_flops(cell, [four]))
    trainer = trainer_of(cell)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        evaluate_reasoner(trainer.model, trainer.task, cell, [eight], torch.device("cpu"))
    counted = sum(n for op, n in counter.get_flop_counts()["Global"].items() if "convolution" not in str(op))
    assert evaluation_flops(cell, [eight]) == pytest.approx(counted, rel=0.15)
