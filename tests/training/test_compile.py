"""torch.compile of the core: every shape is compiled before it is needed, and a failure is no failure of the run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest
import torch

from looprepro.config.cell import Cell, Execution
from looprepro.models import looped_transformer
from looprepro.tasks import make_task
from looprepro.training.trainer import WordTrainer

MakeCell = Callable[..., Cell]
pytestmark = [  # torch's compiler warns about itself
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning"),
]


def trainer_of(cell: Cell, compiled: bool) -> WordTrainer:
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    return WordTrainer(cell, task, Execution(threads=1, device="cpu", kernels="plain", compile=compiled), torch.device("cpu"))


def broken(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., object]:
    raise RuntimeError("this backend makes nothing")


def test_where_compiling_fails_the_plain_code_goes_on_after_one_warning(make_cell: MakeCell) -> None:
    cell = make_cell()
    plain, other = trainer_of(cell, compiled=False), trainer_of(cell, compiled=False)
    other.model.compile_core(backend=broken)
    with pytest.warns(RuntimeWarning, match="the core cannot be compiled, the plain code runs instead") as caught:
        other.warm_up()
    assert sum(warning.category is RuntimeWarning for warning in caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            other.warm_up()
            assert other.train_step().loss == plain.train_step().loss
    torch._dynamo.reset()


def test_after_the_warm_up_of_a_length_no_step_compiles(make_cell: MakeCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend that counts graphs instead of making code, which takes minutes."""
    monkeypatch.setattr(looped_transformer, "ROW_BUCKETS", 2)
    cell = make_cell(steps=20)
    graphs = []

    def counting(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    plain, compiled = trainer_of(cell, compiled=False), trainer_of(cell, compiled=False)
    compiled.model.compile_core(backend=counting)
    made = []
    for step in range(20):
        compiled.warm_up()
        made.append(len(graphs))
        loss = compiled.train_step().loss
        assert len(graphs) == made[-1], f"step {step} compiled"
        assert loss == pytest.approx(plain.train_step().loss, rel=1e-5)
    assert made[0] >= 2
    assert len(set(made)) == 2  # two lengths, each compiled once
    assert compiled.compile_seconds > 0
    torch._dynamo.reset()


@pytest.mark.slow
def test_the_compiled_core_computes_what_the_plain_one_does(make_cell: MakeCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looped_transformer, "ROW_BUCKETS", 1)
    cell = make_cell(steps=1)
    plain, compiled = trainer_of(cell, compiled=False), trainer_of(cell, compiled=True)
    compiled.warm_up()
    assert compiled.train_step().loss == pytest.approx(plain.train_step().loss, rel=1e-5)
    assert compiled.compile_seconds > 0
    torch._dynamo.reset()
