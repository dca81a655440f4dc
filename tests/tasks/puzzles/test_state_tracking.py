"""State tracking: words, padding, prefix accuracy and the longest length above 90%."""

from __future__ import annotations

import torch

from looprepro.config.puzzles import StateTrackingTask
from looprepro.tasks.groups import finite_group
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.state_tracking import longest_above
from looprepro.tasks.task import UNSCORED

A5 = StateTrackingTask(group="A5", length=6, padded=8, test_lengths=(12,))


def one_hot(answers: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Logits whose largest entry is the answer."""
    return torch.nn.functional.one_hot(answers.clamp(min=0), vocabulary).to(torch.float32)


def test_targets_are_the_products_read_from_the_left() -> None:
    task = make_puzzle_task(A5, seed=3)
    batch = task.examples(torch.arange(20), 0)
    table = finite_group("A5").table
    for word, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        product = 0
        for letter, target in zip(word[:6], targets[:6], strict=True):
            product = int(table[product, letter - 1])
            assert target == product + 1
    assert (task.vocabulary, task.time, task.causal, task.grid, task.puzzle_identifiers) == (61, 8, True, None, 0)


def test_training_words_are_padded_and_unscored_there() -> None:
    batch = make_puzzle_task(A5, seed=3).examples(torch.arange(5), 0)
    assert batch.inputs.shape == (5, 8)
    assert (batch.inputs[:, 6:] == 0).all()
    assert (batch.inputs[:, :6] > 0).all()
    assert (batch.targets[:, 6:] == UNSCORED).all()
    assert (batch.targets[:, :6] > 0).all()


def test_a_row_is_the_same_in_any_company_and_a_seed_has_its_own_words() -> None:
    task = make_puzzle_task(A5, seed=3)
    together, alone = task.examples(torch.tensor([4, 9, 1]), 0), task.examples(torch.tensor([9]), 5)
    assert torch.equal(together.inputs[1], alone.inputs[0])
    assert not torch.equal(make_puzzle_task(A5, seed=4).examples(torch.tensor([9]), 0).inputs, alone.inputs)


def test_evaluation_words_are_another_stream() -> None:
    task = make_puzzle_task(A5, seed=3)
    trained = {tuple(word) for word in task.examples(torch.arange(400), 0).inputs[:, :6].tolist()}
    tested = {tuple(word) for word in task.evaluation_examples(torch.arange(400)).inputs[:, :6].tolist()}
    assert not trained & tested  # 60^6 = 4.7e10 words: sharing one by chance has probability 3e-6


def test_a_finite_training_set_is_seen_once_per_epoch_in_new_orders() -> None:
    task = make_puzzle_task(A5.model_copy(update={"train_items": 7}), seed=0)
    epochs = [[tuple(word) for word in task.examples(torch.arange(7) + 7 * e, 0).inputs.tolist()] for e in range(3)]
    assert len(set(epochs[0])) == 7
    assert all(set(epoch) == set(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert [tuple(word) for word in task.examples(torch.arange(5, 9), 0).inputs.tolist()] == epochs[0][5:] + epochs[1][:2]


def test_several_test_lengths_take_turns() -> None:
    task = make_puzzle_task(A5.model_copy(update={"test_lengths": (2, 5)}), seed=0)
    batch = task.evaluation_examples(torch.arange(4))
    assert batch.difficulty.tolist() == [2.0, 5.0, 2.0, 5.0]
    assert (batch.targets != UNSCORED).sum(dim=1).tolist() == [2, 5, 2, 5]
    assert task.evaluation_time == 5


def test_prefix_accuracy_and_the_longest_length() -> None:
    """Ten words of 12 letters; the answer at position 5 (from 1) is wrong in two words, at position 3 in one of these."""
    task = make_puzzle_task(A5, seed=1)
    batch = task.evaluation_examples(torch.arange(10))
    answers = batch.targets.clone()
    answers[0, 4] = answers[0, 4] % 60 + 1
    answers[1, 2] = answers[1, 2] % 60 + 1
    answers[1, 4] = answers[1, 4] % 60 + 1
    counts = task.metrics(one_hot(answers, 61), batch)
    assert counts["exact_accuracy"].value.item() == 0.8
    assert abs(counts["token_accuracy"].value.item() - (1 - 3 / 120)) < 1e-12
    assert counts["prefix_accuracy"].value.tolist() == [1.0] * 2 + [0.9] * 2 + [0.8] * 8
    pooled = task.pooled_metrics(answers, torch.ones(10), torch.arange(10))
    assert pooled["score"].value.item() == 0.8
    assert pooled["max_length"].value.item() == 2.0, "90% is not above 90%"
    assert longest_above(torch.tensor([0.95, 0.91, 0.91, 0.2])) == 3
    assert longest_above(torch.tensor([0.5, 0.4])) == 0


def test_shorter_words_do_not_enter_the_prefix_accuracy() -> None:
    task = make_puzzle_task(A5.model_copy(update={"test_lengths": (2, 5)}), seed=0)
    batch = task.evaluation_examples(torch.arange(4))
    answers = batch.targets.clone()
    answers[0] = 1  # a short word all wrong or nearly
    counts = task.metrics(one_hot(answers, 61), batch)
    assert counts["prefix_accuracy"].items == 2
    assert counts["prefix_accuracy"].value.tolist() == [1.0] * 5
    assert counts["exact_accuracy"].value.item() == 0.75


def test_two_generators_spell_every_word() -> None:
    task = make_puzzle_task(StateTrackingTask(alphabet="generators", length=4, test_lengths=(4,)), seed=0)
    batch = task.examples(torch.arange(200), 0)
    assert set(batch.inputs.unique().tolist()) == {g + 1 for g in finite_group("A5").generators}
    assert task.vocabulary == 61
