"""State tracking: prefix products of words of a finite group, trained on short words and measured on long ones.

Tokens are element + 1, 0 is the pad, so A5 has 61 token ids and S5 121 (Fixed-Point Reasoners, section 4.3; the public
code's layout). No start token: the causal convolution sees the left edge. The product is read left to right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.puzzles import StateTrackingTask
from looprepro.tasks.groups import FiniteGroup, alphabet, finite_group
from looprepro.tasks.puzzles.epochs import shuffled
from looprepro.tasks.puzzles.task import PAD, Graded, PuzzleBatch
from looprepro.tasks.task import UNSCORED, Count


class StateTracking(Graded):
    """The state-tracking task of one cell; satisfies :class:`looprepro.tasks.puzzles.task.PuzzleTask`."""

    config: StateTrackingTask
    causal = True

    def __init__(self, config: StateTrackingTask, seed: int) -> None:
        self.config, self.seed = config, seed
        self.group: FiniteGroup = finite_group(config.group)
        self.alphabet = alphabet(self.group, config.alphabet)
        """Int64 ``[letters]``: the element ids that words are made of."""

    @property
    def evaluation_time(self) -> int:
        """Positions of the longest evaluation word."""
        return self.config.evaluation_time

    def examples(self, rows: Tensor, step: int) -> PuzzleBatch:
        """Training words number ``rows``; with ``train_items`` a reshuffled finite set of them."""
        items = rows if self.config.train_items is None else shuffled(self.seed, rows, self.config.train_items)
        words = self._words(randomness.WORDS, items, self.config.length)
        return self._encode(words, torch.full_like(rows, self.config.length), rows, self.time)

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """Evaluation words number ``rows``, from a stream that training never draws; lengths take turns."""
        lengths = torch.tensor(self.config.test_lengths, device=rows.device)[rows % len(self.config.test_lengths)]
        time = self.config.evaluation_time
        return self._encode(self._words(randomness.EVALUATION, rows, time), lengths, rows, time)

    def metrics(self, logits: Tensor, batch: PuzzleBatch) -> dict[str, Count]:
        """As for puzzles, and ``prefix_accuracy`` ``[time]``: all products up to here right, read from one causal pass."""
        return super().metrics(logits, batch) | {"prefix_accuracy": _prefixes(logits.argmax(dim=-1), batch)}

    def pooled_metrics(self, answers: Tensor, confidence: Tensor, rows: Tensor) -> dict[str, Count]:
        """Also ``max_length``: the largest length with a prefix accuracy above 90% (Figure 2a)."""
        found = super().pooled_metrics(answers, confidence, rows)
        prefixes = _prefixes(answers, self.evaluation_examples(rows))
        if not prefixes.items:
            return found
        return found | {"max_length": Count(torch.tensor(float(longest_above(prefixes.value)), dtype=torch.float64), 1)}

    def _words(self, stream: int, rows: Tensor, length: int) -> Tensor:
        letters = randomness.integers(self.seed, stream, 0, rows, length, len(self.alphabet), rows.device)
        return self.alphabet.to(rows.device)[letters]

    def _encode(self, words: Tensor, lengths: Tensor, rows: Tensor, time: int) -> PuzzleBatch:
        """Element ids ``[rows, letters]`` to tokens and targets ``[rows, time]``, padded beyond a row's length."""
        missing = time - words.shape[-1]
        inside = torch.arange(time, device=words.device) < lengths[:, None]
        inputs = torch.nn.functional.pad(words + 1, (0, missing))
        targets = torch.nn.functional.pad(self.group.prefix_products(words) + 1, (0, missing))
        inputs, targets = inputs.masked_fill(~inside, PAD), targets.masked_fill(~inside, UNSCORED)
        return PuzzleBatch(inputs, targets, torch.zeros_like(rows), lengths.to(torch.float64), rows)


def _prefixes(answers: Tensor, batch: PuzzleBatch) -> Count:
    """``[time]``: rows of full length whose answers are right here and at all earlier positions."""
    whole = (batch.targets != UNSCORED).all(dim=-1)
    right = (answers == batch.targets)[whole].to(torch.float64).cumprod(dim=-1)
    return Count(right.sum(dim=0), int(whole.sum()))


def longest_above(prefix_accuracy: Tensor, threshold: float = 0.9) -> int:
    """The largest length whose prefix accuracy (``[time]``, mean over words) exceeds ``threshold``; 0: not even one letter.

    Prefix accuracy cannot rise with the length, so this is where it crosses (Figure 2a: maximum length at > 90%).
    """
    return int((prefix_accuracy > threshold).sum())
