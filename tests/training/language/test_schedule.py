"""Schedules and step counts against the published ones."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from looprepro.config.cell import Cell, LanguageTask, LanguageTraining, LoopedTransformer, Recurrence
from looprepro.config.costs import total_steps
from looprepro.config.language_formulas import rows_per_step, schedule_steps
from looprepro.training.language_schedule import rates

RECURRENCE = Recurrence(scheme="poisson-truncated-full", mean=8.0, maximum=None, backprop_depth=4)
MODELS = {
    "60M": LoopedTransformer(width=640, heads=5, prelude_layers=2, core_layers=4, coda_layers=2, recurrence=RECURRENCE),
    "140M": LoopedTransformer(width=768, heads=6, value_embeddings=True, recurrence=RECURRENCE),
    "370M": LoopedTransformer(
        width=1024, heads=8, prelude_layers=4, core_layers=4, coda_layers=4, value_embeddings=True, recurrence=RECURRENCE
    ),
}


def cell(size: str, **training: object) -> Cell:
    return Cell(task=LanguageTask(), model=MODELS[size], training=LanguageTraining.model_validate(training), seed=0)


@pytest.mark.parametrize(
    ("size", "tokens", "steps"),
    [
        ("140M", 11_200_000_000, 21_362),
        ("370M", 29_600_000_000, 56_457),
        ("60M", 1_200_000_000, 2_288),
        ("60M", 4_800_000_000, 9_155),
    ],
)
def test_step_counts_are_whole_batches_of_524288_tokens(size: str, tokens: int, steps: int) -> None:
    made = cell(size, tokens=tokens)
    assert rows_per_step(made) == 256
    assert schedule_steps(made) == total_steps(made) == steps


def test_a_budget_may_be_a_multiple_of_the_parameters() -> None:
    assert total_steps(cell("60M", tokens_per_parameter=20)) == 20 * 61_125_120 // 524_288
    early = cell("140M", tokens=11_200_000_000, parcae_compat={"stop_one_step_early": True})
    assert (schedule_steps(early), total_steps(early)) == (21_362, 21_361)


@pytest.mark.parametrize("given", [{}, {"tokens": 10**6, "tokens_per_parameter": 2.0}])
def test_exactly_one_budget_is_given(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="either tokens or tokens_per_parameter"):
        LanguageTraining.model_validate(given)


def test_a_batch_is_a_whole_number_of_rows() -> None:
    with pytest.raises(ValidationError, match="whole number of rows"):
        cell("60M", tokens=10**6, batch_tokens=3000)


def test_the_trapezoid_is_flat_for_half_the_steps_and_ends_just_above_zero() -> None:
    training = LanguageTraining(tokens=1)
    found = [rates(training, step, 1000) for step in range(1000)]
    assert [r.lr for r in found[:501]] == [8e-3] * 501
    assert found[501].lr == pytest.approx(8e-3 * 499 / 500)
    assert found[999].lr == pytest.approx(8e-3 / 500)
    odd = [rates(training, step, 21_361).lr for step in (10_681, 10_682)]  # falls over floor(21361 / 2) = 10680 steps
    assert odd == [8e-3, pytest.approx(8e-3 * 10_679 / 10_680)]


def test_momentum_rises_over_300_steps_and_weight_decay_falls_to_zero() -> None:
    training = LanguageTraining(tokens=1, muon_lr=4e-3)
    found = [rates(training, step, 2000) for step in (0, 150, 300, 1999)]
    assert [r.momentum for r in found] == [0.85, pytest.approx(0.9), pytest.approx(0.95), pytest.approx(0.95)]
    assert [r.weight_decay for r in found] == [0.2, pytest.approx(0.185), pytest.approx(0.17), pytest.approx(0.2 / 2000)]
    assert all(r.muon_lr == pytest.approx(r.lr / 2) for r in found)


def test_a_warm_up_reaches_the_full_rate_and_a_floor_holds() -> None:
    training = LanguageTraining(tokens=1, warmup=4, final_lr_ratio=0.1)
    assert [rates(training, step, 100).lr for step in range(5)] == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3, 8e-3])
    assert rates(training, 99, 100).lr == pytest.approx(8e-4)
