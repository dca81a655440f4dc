"""Loss curves of short runs, committed: no optimisation may move them, and none may be switched off and move them.

loss_curves.json was written by the plain code with the masked loop. ``python tests/golden/test_loss_curves.py`` writes it
again: after a change of the model, never after an optimisation. Relative to it, float32: 1e-5 over 50 steps and 1e-3
over 200; float64: 1e-9 over 200.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from looprepro.config.cell import Cell, Execution, GroupWordsTask, Injection, LoopedTransformer, Recurrence, Training
from looprepro.native.library import find_compiler
from looprepro.tasks import make_task
from looprepro.training.trainer import WordTrainer

CURVES = Path(__file__).with_name("loss_curves.json")
STEPS = 200
INJECTIONS = {"diagonal": Injection(), "conformal": Injection(method="conformal", groups=2)}


def cell_of(injection: str, dtype: str) -> Cell:
    return Cell(
        task=GroupWordsTask(group="S3", length=4),
        model=LoopedTransformer(
            width=16,
            heads=2,
            prelude_layers=1,
            core_layers=1,
            coda_layers=1,
            injection=INJECTIONS[injection],
            recurrence=Recurrence(mean=2.0, maximum=3),
        ),
        training=Training.model_validate({"steps": STEPS, "batch": 8, "warmup": 10, "lr": 3e-3, "dtype": dtype}),
        seed=5,
    )


def curve(injection: str, dtype: str, optimised: bool) -> list[float]:
    """Losses of all steps with every optimisation of the CPU on, or with none."""
    torch.set_num_threads(1)
    cell = cell_of(injection, dtype)
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    kind = "fused" if optimised else "plain"
    settings = {"threads": 1, "device": "cpu", "kernels": kind, "read_back_every": 10 if optimised else 1}
    trainer = WordTrainer(cell, task, Execution.model_validate(settings), torch.device("cpu"))
    assert trainer.kernels == kind
    trainer.model.masked_loop = not optimised
    return [float(trainer.train_step().loss) for _ in range(STEPS)]


@pytest.mark.parametrize("optimised", [True, False], ids=["optimised", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("injection", list(INJECTIONS))
def test_losses_follow_the_committed_curve(injection: str, dtype: str, optimised: bool) -> None:
    if optimised and find_compiler() is None:
        pytest.skip("the fused kernels need a C compiler")
    expected = json.loads(CURVES.read_text(encoding="utf-8"))[injection][dtype]
    found = curve(injection, dtype, optimised)
    assert expected[-1] < 0.9 * expected[0]  # it is a run that learns
    errors = [abs(mine - other) / abs(other) for mine, other in zip(found, expected, strict=True)]
    if dtype == "float64":
        assert max(errors) <= 1e-9
    else:
        assert max(errors[:50]) <= 1e-5
        assert max(errors) <= 1e-3


def write() -> None:
    """Make the curves again."""
    dtypes = ("float32", "float64")
    curves = {name: {dtype: curve(name, dtype, optimised=False) for dtype in dtypes} for name in INJECTIONS}
    CURVES.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
