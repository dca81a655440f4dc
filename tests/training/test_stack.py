"""A stacked trainer does to every member what the member's own trainer would do, up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from looprepro.config.cell import Cell, Execution, Injection
from looprepro.training import checkpoint
from looprepro.training.families import MembersDiverged
from looprepro.training.stack import StackedTrainer
from looprepro.training.trainer import WordTrainer
from looprepro.training.words import FAMILY

MakeCell = Callable[..., Cell]
CPU = torch.device("cpu")
SEEDS = (3, 4)


def trainers(make_cell: MakeCell, **keys: Any) -> list[WordTrainer]:
    return [FAMILY.trainer(make_cell(seed=seed, **keys), Execution(device="cpu"), CPU) for seed in SEEDS]


def tensors(trainer: WordTrainer) -> dict[str, torch.Tensor]:
    return {f"{stem}/{name}": t.clone() for stem, content in trainer.tensors().items() for name, t in content.items()}


@pytest.mark.parametrize(
    ("dtype", "tolerance", "injection"),
    [("float64", 1e-9, Injection(method="conformal", groups=2)), ("float32", 1e-3, Injection())],
    ids=["float64, conformal", "float32, diagonal"],
)
def test_the_first_fifty_steps_agree_to_rounding(
    make_cell: MakeCell, dtype: str, tolerance: float, injection: Injection
) -> None:
    keys = {"injection": injection, "dtype": dtype, "steps": 50, "average_last": 0.5, "clip": 1.5, "schedule": "cosine"}
    alone, together = trainers(make_cell, **keys), trainers(make_cell, **keys)
    stack = StackedTrainer(together)
    clipped = 0
    for _ in range(50):
        reports = stack.train_step()
        for trainer, report in zip(alone, reports, strict=True):
            own = trainer.train_step()
            clipped += own.grad_norm > 1.5
            assert (report.step, report.lr, report.length, report.mean_depth) == (own.step, own.lr, own.length, own.mean_depth)
            assert report.loss == pytest.approx(own.loss, rel=tolerance)
            assert report.grad_norm == pytest.approx(own.grad_norm, rel=tolerance)
    assert 0 < clipped < 50 * len(SEEDS)
    stack.settle()
    for trainer, member in zip(alone, together, strict=True):
        expected, found = tensors(trainer), tensors(member)
        assert expected.keys() == found.keys()
        assert any(name.startswith("average/") for name in expected)
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=10 * tolerance, atol=10 * tolerance, msg=name)
    assert len({report.loss for report in reports}) == len(SEEDS)


def test_settled_members_can_be_saved_restored_and_stacked_again(make_cell: MakeCell, tmp_path: Any) -> None:
    keys = {"average_last": 0.75}
    whole, parted = StackedTrainer(trainers(make_cell, **keys)), StackedTrainer(trainers(make_cell, **keys))
    for _ in range(5):
        whole.train_step()
        parted.train_step()
    parted.settle()
    again = trainers(make_cell, **keys)
    for i, member in enumerate(parted.members):
        folder = checkpoint.save(tmp_path / str(i), member.step, 0.0, member.tensors(), {})
        again[i].restore(checkpoint.load(folder))
    continued = StackedTrainer(again)
    assert [whole.train_step() for _ in range(4)] == [continued.train_step() for _ in range(4)]
    whole.settle()
    continued.settle()
    for one, other in zip(whole.members, continued.members, strict=True):
        expected, found = tensors(one), tensors(other)
        assert expected.keys() == found.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_settled_member_goes_on_alone_without_moving_the_others(make_cell: MakeCell) -> None:
    stack = StackedTrainer(trainers(make_cell))
    for _ in range(3):
        stack.train_step()
    stack.settle()
    before = tensors(stack.members[1])
    assert stack.members[0].train_step().step == 4
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(stack.members[1]).items())


def test_a_member_that_diverges_is_named_and_nobody_moves(make_cell: MakeCell) -> None:
    stack = StackedTrainer(trainers(make_cell))
    stack.train_step()
    before = {name: p.detach().clone() for name, p in stack.parameters.items()}
    stack.parameters["core.0.mlp.up.weight"].register_hook(lambda g: torch.stack([g[0], g[1] * torch.nan]))
    with pytest.raises(MembersDiverged) as raised:
        stack.train_step()
    assert {i: (d.step, d.reason) for i, d in raised.value.members.items()} == {1: (2, "gradient norm is nan")}
    assert stack.step == 1
    assert all(torch.equal(p, before[name]) for name, p in stack.parameters.items())


def test_members_at_different_steps_are_refused(make_cell: MakeCell) -> None:
    members = trainers(make_cell)
    members[1].train_step()
    with pytest.raises(ValueError, match=r"not at \[0, 1\]"):
        StackedTrainer(members)
