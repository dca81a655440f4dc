"""Group words: golden batches, random access, loss and metrics by hand, the two facts about the start token, overlap."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro import randomness
from looprepro.config.cell import GroupWordsTask
from looprepro.tasks import Batch, Count, make_task
from looprepro.tasks.overlap import occurring
from looprepro.tasks.task import UNSCORED

torch.set_num_threads(1)


def task(steps=100, batch=8, seed=3, **settings):
    return make_task(GroupWordsTask(**settings), seed, steps, batch)


# ---- words, tokens, targets


def test_a_batch_is_start_token_word_and_prefix_products():
    words = task(group="S3", length=4)
    batch = words.encode(torch.tensor([[2, 1, 1, 2], [3, 3, 3, 0]]), torch.tensor([7, 9]))
    assert words.vocabulary == 7
    assert words.max_time == 5
    # By hand, ids in the order 012 021 102 120 201 210: 102 021 = 120; 120 120 = 201; 201 120 = 012.
    assert batch.tokens.tolist() == [[6, 2, 1, 1, 2], [6, 3, 3, 3, 0]]
    assert batch.targets.tolist() == [[UNSCORED, 2, 3, 2, 0], [UNSCORED, 3, 4, 0, 0]]
    assert batch.scored.tolist() == [False, True, True, True, True]
    assert batch.rows.tolist() == [7, 9]


def test_without_start_token_the_vocabulary_stays_and_every_position_is_scored():
    words = task(group="S3", length=4, start_token=False)
    batch = words.encode(torch.tensor([[2, 1, 1, 2]]), torch.tensor([0]))
    assert words.vocabulary == 7
    assert words.max_time == 4
    assert batch.tokens.tolist() == [[2, 1, 1, 2]]
    assert batch.targets.tolist() == [[2, 3, 2, 0]]
    assert batch.scored.all()


def test_the_start_token_changes_neither_words_nor_targets():
    rows = torch.arange(5)
    with_start, without = task(length=8).examples(rows, 99), task(length=8, start_token=False).examples(rows, 99)
    assert torch.equal(with_start.tokens[:, 1:], without.tokens)
    assert torch.equal(with_start.targets[:, 1:], without.targets)


def test_the_alphabet_is_all_elements_or_the_generators():
    rows = torch.arange(400)
    everything = task(group="A5", length=32).examples(rows, 99).tokens[:, 1:]
    assert everything.unique().tolist() == list(range(60))
    some = task(group="A5", length=32, alphabet="generators")
    assert some.examples(rows, 99).tokens[:, 1:].unique().tolist() == sorted(some.group.generators)
    assert some.examples(rows, 99).targets[:, 1:].unique().tolist() == list(range(60))


def test_a_generating_set_of_one_is_joined_by_the_identity():
    assert task(group="Z60", alphabet="generators").alphabet.tolist() == [0, 1]


def test_a_row_is_the_same_word_whatever_batch_it_is_in():
    words = task(length=16)
    together = words.examples(torch.arange(40, 60), 99)
    shuffled = torch.tensor([55, 41, 2**33, 47])
    alone = words.examples(shuffled, 99)
    for place, row in enumerate(shuffled.tolist()):
        one = words.examples(torch.tensor([row]), 99)
        assert torch.equal(one.tokens[0], alone.tokens[place])
        assert torch.equal(one.targets[0], alone.targets[place])
        if 40 <= row < 60:
            assert torch.equal(one.tokens[0], together.tokens[row - 40])


def test_the_step_sets_the_length_and_nothing_else():
    words = task(length=32, steps=100)
    rows = torch.arange(6)
    full = words.examples(rows, 99)
    for step, length in ((0, 2), (19, 2), (20, 4), (79, 16), (80, 32)):
        assert words.length(step) == length
        batch = words.examples(rows, step)
        assert torch.equal(batch.tokens, full.tokens[:, : length + 1])
        assert torch.equal(batch.targets, full.targets[:, : length + 1])


def test_seeds_and_streams_draw_different_words():
    rows = torch.arange(50)
    train, other = task(seed=1).examples(rows, 99).tokens, task(seed=2).examples(rows, 99).tokens
    held_out = task(seed=1).evaluation_examples(rows).tokens
    for first, second in ((train, other), (train, held_out)):
        assert (first[:, 1:] == second[:, 1:]).float().mean() < 0.05  # 1/60 by chance
    assert held_out.shape == (50, 33)


def test_letters_are_uniform_over_the_alphabet():
    counts = torch.bincount(task(length=32).examples(torch.arange(3000), 99).tokens[:, 1:].flatten(), minlength=60)
    expected = 3000 * 32 / 60
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 98.3  # the 0.999 quantile of chi-square with 59 degrees of freedom


# ---- loss and metrics


def logits_for(batch: Batch, vocabulary: int) -> torch.Tensor:
    return torch.randn(*batch.tokens.shape, vocabulary, generator=torch.Generator().manual_seed(0))


def test_loss_is_the_mean_over_scored_positions_of_each_row():
    words = task(group="Z2", length=2, alphabet="all")
    batch = words.encode(torch.tensor([[1, 1], [0, 1]]), torch.arange(2))  # targets 1 0 and 0 1
    logits = torch.zeros(2, 3, 3)
    logits[:, 0] = torch.tensor([1e30, float("inf"), float("nan")])  # the start token's output takes no part
    logits[0, 1] = torch.tensor([0.0, math.log(2.0), 0.0])  # probability 2/4 of 1
    logits[0, 2] = torch.tensor([math.log(6.0), 0.0, 0.0])  # 6/8 of 0
    # the other row is uniform over three ids
    expected = [(math.log(2.0) + math.log(8 / 6)) / 2, math.log(3.0)]
    torch.testing.assert_close(words.loss(logits, batch), torch.tensor(expected))


def test_gradients_reach_scored_positions_only():
    words = task(group="S3", length=4)
    batch = words.examples(torch.arange(3), 99)
    logits = logits_for(batch, words.vocabulary).requires_grad_()
    words.loss(logits, batch).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[:, 0] == 0).all()
    assert (logits.grad[:, 1:] != 0).all()


def test_low_precision_logits_give_a_float32_loss_and_float64_stays():
    words = task(group="S3", length=4)
    batch = words.examples(torch.arange(3), 99)
    logits = logits_for(batch, words.vocabulary)
    rounded = logits.bfloat16()
    torch.testing.assert_close(words.loss(rounded, batch), words.loss(rounded.float(), batch), rtol=0, atol=0)
    assert words.loss(rounded, batch).dtype == torch.float32
    assert words.loss(logits.double(), batch).dtype == torch.float64


def test_a_stack_of_runs_gives_each_run_its_own_loss_and_counts():
    tasks = [task(group="S3", length=4, seed=seed) for seed in (1, 2)]
    batches = [words.examples(torch.arange(5), 99) for words in tasks]
    logits = torch.stack([logits_for(batches[0], 7), logits_for(batches[1], 7) + 1.5 * torch.arange(7)])
    stacked = Batch(
        torch.stack([batch.tokens for batch in batches]),
        torch.stack([batch.targets for batch in batches]),
        batches[0].scored,
        batches[0].rows,
    )
    losses, metrics = tasks[0].loss(logits, stacked), tasks[0].metrics(logits, stacked)
    mapped = torch.func.vmap(lambda one: tasks[0].loss(one, batches[0]))(logits)
    for run in range(2):
        torch.testing.assert_close(losses[run], tasks[run].loss(logits[run], batches[run]))
        torch.testing.assert_close(mapped[run], tasks[0].loss(logits[run], batches[0]))
        for name, count in tasks[run].metrics(logits[run], batches[run]).items():
            torch.testing.assert_close(metrics[name].total[run], count.total)
            assert metrics[name].items == count.items


def test_metrics_count_right_answers_by_position():
    words = task(group="Z2", length=3)
    batch = words.encode(torch.tensor([[1, 0, 0], [1, 1, 0]]), torch.arange(2))  # targets 1 1 1 and 1 0 0
    said = torch.tensor([[0, 1, 1, 0], [1, 1, 2, 0]])  # right: yes yes no; yes no (the start token) yes
    logits = torch.nn.functional.one_hot(said, 3).float()
    metrics = words.metrics(logits, batch)
    assert (metrics["last_token_accuracy"].total.item(), metrics["last_token_accuracy"].items) == (1.0, 2)
    assert (metrics["mean_token_accuracy"].total.item(), metrics["mean_token_accuracy"].items) == (4.0, 6)
    assert (metrics["position_accuracy"].total.tolist(), metrics["position_accuracy"].items) == ([2.0, 1.0, 1.0], 2)
    # softmax of one-hot over three ids: right costs ln(e + 2) - 1, wrong ln(e + 2); two of six answers are wrong
    mean_loss = math.log(math.e + 2.0) - 4 / 6
    assert metrics["loss"].value.item() == pytest.approx(mean_loss, rel=1e-6)
    assert metrics["loss"].items == 2


def test_counts_of_batches_add_up_to_the_count_of_the_whole():
    words = task(group="S3", length=4)
    batch = words.evaluation_examples(torch.arange(10))
    logits = logits_for(batch, words.vocabulary)
    whole = words.metrics(logits, batch)
    first = words.metrics(logits[:3], words.evaluation_examples(torch.arange(3)))
    rest = words.metrics(logits[3:], words.evaluation_examples(torch.arange(3, 10)))
    for name, count in whole.items():
        added = first[name] + rest[name]
        assert added.items == count.items
        torch.testing.assert_close(added.value, count.value)


# ---- the start token


def causal_attention(tokens: torch.Tensor, vocabulary: int, seed: int) -> torch.Tensor:
    """Two layers of causal attention with rotary positions and a residual; random weights, outputs ``[time, vocabulary]``."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator) / shape[-1] ** 0.5  # noqa: E731
    width, time = 8, len(tokens)
    angles = torch.arange(time, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03], dtype=torch.float64)
    turn = torch.polar(torch.ones_like(angles), angles)
    rotate = lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(time, -1, 2)) * turn).flatten(1)  # noqa: E731
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    x = draw(vocabulary, width)[tokens]
    for _ in range(2):
        query, key, value = rotate(x @ draw(width, width)), rotate(x @ draw(width, width)), x @ draw(width, width)
        x = x + (8 * query @ key.T).masked_fill(future, -torch.inf).softmax(dim=-1) @ value
        x = x + (x @ draw(width, width)).relu() @ draw(width, width)
    return x @ draw(width, vocabulary)


@pytest.mark.parametrize("seed", range(3))
def test_without_start_token_a_causal_model_says_the_same_at_every_position_of_a_constant_word(seed):
    words = task(group="A5", length=16, start_token=False)
    batch = words.encode(torch.full((1, 16), words.group.generators[1]), torch.tensor([0]))
    outputs = causal_attention(batch.tokens[0], words.vocabulary, seed)
    torch.testing.assert_close(outputs, outputs[:1].expand_as(outputs), rtol=1e-12, atol=1e-12)
    assert batch.targets[0].unique().numel() == 5  # the powers of a 5-cycle: no constant answer is right
    # The best that such a model can score is the share of one power: 4 of 16 positions (exponents 1..16 mod 5).
    assert torch.bincount(batch.targets[0]).max() == 4


@pytest.mark.parametrize("seed", range(3))
def test_with_start_token_the_same_model_can_tell_positions_apart(seed):
    words = task(group="A5", length=16)
    batch = words.encode(torch.full((1, 16), words.group.generators[1]), torch.tensor([0]))
    outputs = causal_attention(batch.tokens[0], words.vocabulary, seed)[1:]
    distances = torch.cdist(outputs, outputs) + torch.eye(16, dtype=torch.float64)
    assert distances.min() > 1e-6


# ---- overlap of training and evaluation words


def test_overlap_counts_what_a_set_of_words_counts():
    words = task(group="A5", length=8, alphabet="generators", steps=30, batch=8, seed=11)  # 2^8 words
    first = words.curriculum.first_full_step() * 8
    seen = {tuple(word) for word in words.examples(torch.arange(first, 30 * 8), 29).tokens.tolist()}
    wanted = [tuple(word) for word in words.evaluation_examples(torch.arange(200)).tokens.tolist()]
    expected = sum(word in seen for word in wanted)
    assert 0 < expected < 200
    count = words.overlap(200)
    assert (count.total.item(), count.items) == (expected, 200)


def test_words_shorter_than_n_do_not_count_as_training_words():
    # Step 0 trains a word of length 2, step 1 the word number 1 at length 4: only that one counts.
    words = task(group="Z2", length=4, steps=2, batch=1, seed=0)
    last = words.examples(torch.tensor([1]), 1).tokens[0]
    held_out = words.evaluation_examples(torch.arange(100)).tokens
    assert words.overlap(100).total.item() == (held_out == last).all(dim=1).sum().item() > 0


def test_overlap_finds_every_word_when_the_streams_are_one(monkeypatch):
    words = task(group="A5", length=32, steps=5, batch=4, seed=1)  # training words of length 32: rows 16..19
    assert words.overlap(40).total.item() == 0.0
    monkeypatch.setattr(randomness, "EVALUATION", randomness.WORDS)
    assert words.overlap(18).total.item() == 2.0
    assert words.overlap(40).total.item() == 4.0


def test_words_are_found_in_later_blocks_too():
    one, two, three, other = torch.eye(4, dtype=torch.int64)
    blocks = [torch.stack([other, one]), other[None], torch.stack([one, two])]
    assert occurring(torch.stack([two, one, three, two]), blocks, 2).tolist() == [True, True, False, True]


def test_words_that_share_a_code_are_told_apart_by_their_letters():
    # In base 16 the code modulo 2^64 keeps the last 16 letters only, so these two words collide.
    tail = torch.arange(16)
    one, other = torch.cat([torch.tensor([1]), tail]), torch.cat([torch.tensor([2]), tail])
    wanted = torch.stack([one, other])
    assert occurring(wanted, [other[None], other[None]], 16).tolist() == [False, True]
    assert occurring(wanted, [one[None], other[None]], 16).tolist() == [True, True]
    assert occurring(wanted, [], 16).tolist() == [False, False]


def test_a_count_is_a_mean_over_its_items():
    assert (Count(torch.tensor(3.0), 4) + Count(torch.tensor(0.0), 8)).value.item() == 0.25
