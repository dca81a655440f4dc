"""A language model's training: what a step does, resuming bit by bit, and numbers that are not finite."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from looprepro import randomness
from looprepro.config.cell import Cell, Execution, Injection
from looprepro.models.recurrence import parcae_depths
from looprepro.training import checkpoint
from looprepro.training.distributed import Ranks
from looprepro.training.families import Diverged
from looprepro.training.language import LanguageTrainer, max_decay

CPU = torch.device("cpu")
EXECUTION = Execution(threads=1, device="cpu", log_every=2)


def trainer(cell: Cell, text, ranks: Ranks | None = None) -> LanguageTrainer:
    return LanguageTrainer(cell, text, EXECUTION, CPU, ranks)


def gradients(made: LanguageTrainer) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in made.parameters.items()}


def shaken(made: LanguageTrainer) -> LanguageTrainer:
    """Weights away from the start, where most gradients are zero."""
    with torch.no_grad():
        for name, p in made.parameters.items():
            noise = torch.randn(p.shape, generator=randomness.parameter_generator(9, name)).to(p)
            p.add_(0.1 * noise)
    return made


@pytest.mark.parametrize("backprop_depth", [None, 2])
def test_a_batch_is_the_mean_loss_per_real_token_whatever_the_micro_batch(language_cell, text, backprop_depth) -> None:
    found = []
    for size in (1, 3, 8):
        made = shaken(trainer(language_cell(backprop_depth=backprop_depth, micro_batch=size, dtype="float64"), text))
        sums = made._accumulate(1)
        found.append((sums[0] / sums[1], gradients(made)))
    rows = torch.arange(8) + 8
    batch = text.examples(rows, 1)
    made = shaken(trainer(language_cell(backprop_depth=backprop_depth, dtype="float64"), text))
    state = made.initial_state(randomness.STATE, 1, rows - 8)
    logits = made.model(batch.tokens, made.sample_depths(1, rows - 8, 1), state)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())  # over 8 x 8 - 2 x 4 real targets
    loss.backward()
    assert int(batch.scored.sum()) == int(sums[1]) == 56
    for value, grads in found:
        assert float(value) == pytest.approx(float(loss.detach()), rel=1e-12)
        assert all(
            torch.allclose(grads[n], p.grad, rtol=1e-9, atol=1e-13) for n, p in made.parameters.items() if p.grad is not None
        )


def test_the_ranks_share_out_the_micro_batches_and_their_sum_is_the_whole(language_cell, text, monkeypatch) -> None:
    cell = language_cell(dtype="float64", backprop_depth=None)
    whole = shaken(trainer(cell, text))
    whole._accumulate(0)
    monkeypatch.setattr(Ranks, "sum", lambda self, tensors: None)
    parts = []
    for rank in range(3):  # 4 micro-batches over 3 ranks: one of them does two
        part = shaken(trainer(cell, text, Ranks(rank, 3)))
        sums = part._accumulate(0)
        parts.append({name: grad * float(sums[1]) for name, grad in gradients(part).items()})
    total = {name: sum(part[name] for part in parts) / 56 for name in parts[0]}
    assert all(torch.allclose(total[name], grad, rtol=1e-9, atol=1e-13) for name, grad in gradients(whole).items())


def test_a_short_run_learns_and_reports_what_the_issue_asks(language_cell, text) -> None:
    made = trainer(language_cell(tokens=30 * 64, validate_every=10), text)
    records = [made.train_step().record() for _ in range(made.total)]
    assert made.total == 30
    assert records[0]["loss"] == pytest.approx(math.log(300), abs=0.5)
    assert records[-1]["loss"] < records[0]["loss"] - 1.0
    assert [r["step"] for r in records if "validation_loss" in r] == [10, 20, 30]
    assert [r["step"] for r in records if "max_decay" in r] == [1, *range(2, 31, 2)]
    assert records[0]["max_decay"] == pytest.approx(0.2**0.5, abs=0.05)
    assert 0 < records[-1]["relative_change"] < 1
    assert records[-1]["tokens"] == 30 * 56


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's compiler warns about itself
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_a_scale_that_asks_for_compiling_trains_the_same_numbers(language_cell, text, monkeypatch) -> None:
    """With a backend that runs the graphs as they are: making code of them takes minutes."""
    cell = language_cell()
    plain = trainer(cell, text)
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled = LanguageTrainer(cell, text, Execution(threads=1, device="cpu", log_every=2, compile=True), CPU)
    compiled.warm_up()
    assert compiled.compile_seconds > 0
    for _ in range(3):
        assert compiled.train_step().record() == pytest.approx(plain.train_step().record(), rel=1e-5)
    torch._dynamo.reset()


def test_a_resumed_run_goes_on_bit_by_bit(language_cell, text, tmp_path: Path) -> None:
    cell = language_cell()
    whole, first = trainer(cell, text), trainer(cell, text)
    records = [whole.train_step().record() for _ in range(whole.total)]
    for _ in range(2):
        first.train_step()
    folder = checkpoint.save(tmp_path, first.step, 0.0, first.tensors(), {})
    second = trainer(language_cell(), text)
    second.restore(checkpoint.load(folder))
    assert [second.train_step().record() for _ in range(second.total - 2)] == records[2:]
    assert all(torch.equal(p, second.parameters[name]) for name, p in whole.parameters.items())


def test_updates_that_are_not_finite_are_skipped_and_counted_and_too_many_end_the_run(language_cell, text, monkeypatch) -> None:
    made = trainer(language_cell(max_skipped=1), text)
    made.train_step()
    before = {name: p.detach().clone() for name, p in made.parameters.items()}
    loss = text.loss
    monkeypatch.setattr(type(text), "loss", lambda self, logits, batch: loss(logits, batch) * float("nan"))
    report = made.train_step().record()
    assert (report["skipped"], report["step"]) == (1, 2)
    assert "loss" not in report
    assert all(math.isfinite(value) for value in report.values())
    assert all(torch.equal(before[name], p) for name, p in made.parameters.items())
    monkeypatch.undo()
    assert "loss" in made.train_step().record()
    monkeypatch.setattr(type(text), "loss", lambda self, logits, batch: loss(logits, batch) * float("inf"))
    made.train_step()
    with pytest.raises(Diverged, match="2 updates in a row"):
        made.train_step()


def test_the_first_update_counts_unless_parcae_is_imitated(language_cell, text) -> None:
    moved = {}
    for compat in (False, True):
        made = trainer(language_cell(parcae_compat={"discard_first_step": compat, "stop_one_step_early": compat}), text)
        before = made.model.embedding.weight.detach().clone()
        made.train_step()
        moved[compat] = (not torch.equal(before, made.model.embedding.weight), made.total)
    assert moved == {False: (True, 6), True: (False, 5)}


def test_parcae_compatible_depths_count_micro_batches_from_one_on_each_rank(language_cell, text) -> None:
    cell = language_cell()
    recurrence = cell.model.recurrence.model_copy(update={"parcae_compat": True})
    cell = cell.model_copy(update={"model": cell.model.model_copy(update={"recurrence": recurrence})})
    drawn: list[tuple[int, torch.Tensor]] = []
    for rank, count in ((0, 1), (1, 2)):
        made = trainer(cell, text, Ranks(rank, count))
        made.ranks.sum = lambda tensors: None  # type: ignore[method-assign]
        plain = made.sample_depths
        made.sample_depths = lambda step, rows, micro, plain=plain: (
            drawn.append((micro, plain(step, rows, micro))) or drawn[-1][1]
        )
        made._accumulate(1)
    assert [micro for micro, _ in drawn] == [5, 6, 7, 8, 3, 4]  # 4 micro-batches a step; 2 on each of two ranks
    for (micro, found), rank in zip(drawn, [0, 0, 0, 0, 1, 1], strict=True):
        assert torch.equal(found, sum(parcae_depths(micro, 2, 3, 2, rank)))


@pytest.mark.parametrize(
    "injection", [Injection(), Injection(method="conformal", groups=2, chart="cayley")], ids=lambda i: i.method
)
def test_the_slowest_decay_is_the_largest_modulus_of_the_operator(injection, language_cell, text) -> None:
    made = shaken(trainer(language_cell(injection=injection), text))
    assert max_decay(made.model.injection) == pytest.approx(
        float(torch.linalg.eigvals(made.model.injection.matrix()).abs().max()), rel=1e-6
    )
