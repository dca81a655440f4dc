"""Group words: read g_1..g_n, emit every prefix product g_1...g_t (Rotate the Loop, section 5.1 and appendix E).

Token ids are element ids (tasks/groups.py); one more id, the order of the group, is the start token. It belongs to the
vocabulary whether or not it is used, so that the ablation without it has the same parameters.

Why a start token (our assumption, the paper does not say): without one, a causal model with rotary positions averages
equal values at every position of a constant word g g g ..., so it gives the same output everywhere while the target
changes, whatever its weights. The start token's own output is neither trained nor scored.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import GroupWordsTask
from looprepro.config.curriculum import Curriculum
from looprepro.tasks.groups import FiniteGroup, alphabet, finite_group
from looprepro.tasks.overlap import occurring
from looprepro.tasks.task import UNSCORED, Batch, Count

_OVERLAP_BLOCK = 8192
"""Training words regenerated at a time: the generator's arrays (512 KB) then stay in the cache."""


class GroupWords:
    """The group-word task of one cell; satisfies :class:`looprepro.tasks.task.Task`.

    The word with index i of a stream is the first ``length`` letters of one endless random word, a function of the seed,
    the stream and i alone; the step only sets the length.
    """

    def __init__(self, config: GroupWordsTask, seed: int, steps: int, batch: int) -> None:
        """``steps`` and ``batch`` are those of training: they place the slices of the curriculum, and say which training
        words :meth:`overlap` has to regenerate."""
        self.config = config
        self.seed = seed
        self.steps = steps
        self.batch = batch
        self.group: FiniteGroup = finite_group(config.group)
        self.alphabet = alphabet(self.group, config.alphabet)
        """Int64 ``[letters]``: the element ids that words are made of."""
        self.curriculum = Curriculum.of(config.curriculum, config.length, steps)
        self._offset = int(config.start_token)

    @property
    def vocabulary(self) -> int:
        """The elements and the start token, used or not."""
        return self.group.order + 1

    @property
    def start_token(self) -> int:
        """Id of the start token."""
        return self.group.order

    @property
    def max_time(self) -> int:
        """Positions of a word of length n, the start token included."""
        return self.config.length + self._offset

    def length(self, step: int) -> int:
        """Letters per training word at ``step``."""
        return self.curriculum.length(step)

    def examples(self, rows: Tensor, step: int) -> Batch:
        """Training words number ``rows`` (int64 ``[rows]``; the trainer uses step * batch + row), of the length of ``step``."""
        return self.encode(self.alphabet.to(rows.device)[self._letters(randomness.WORDS, rows, self.length(step))], rows)

    def evaluation_examples(self, rows: Tensor) -> Batch:
        """Evaluation words number ``rows``, of length n, from a stream that training never draws."""
        return self.encode(self.alphabet.to(rows.device)[self._letters(randomness.EVALUATION, rows, self.config.length)], rows)

    def encode(self, words: Tensor, rows: Tensor) -> Batch:
        """Words as element ids, int64 ``[rows, length]``, to tokens and targets ``[rows, time]``."""
        tokens, targets = words, self.group.prefix_products(words)
        scored = torch.ones(words.shape[1] + self._offset, dtype=torch.bool, device=words.device)
        if self._offset:
            first = torch.full_like(words[:, :1], self.start_token)
            tokens = torch.cat([first, tokens], dim=1)
            targets = torch.cat([torch.full_like(first, UNSCORED), targets], dim=1)
            scored[0] = False
        return Batch(tokens, targets, scored, rows)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over the scored positions, ``[..., rows, time, vocabulary]`` to ``[..., rows]``, in float32
        (float64 stays)."""
        scored, targets = self._scored(logits, batch)
        logs = scored.to(torch.promote_types(scored.dtype, torch.float32)).log_softmax(dim=-1)
        return -logs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).mean(dim=-1)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, Count]:
        """Sums over rows, with leading dimensions kept: ``last_token_accuracy``, ``mean_token_accuracy`` and ``loss``
        ``[...]``, ``position_accuracy`` ``[..., length]`` (an answer is the largest of all logits, the start
        token's included)."""
        scored, targets = self._scored(logits, batch)
        right = (scored.argmax(dim=-1) == targets).to(torch.float64).sum(dim=-2)
        rows, length = targets.shape[-2:]
        return {
            "last_token_accuracy": Count(right[..., -1], rows),
            "mean_token_accuracy": Count(right.sum(dim=-1), rows * length),
            "position_accuracy": Count(right, rows),
            "loss": Count(self.loss(logits, batch).to(torch.float64).sum(dim=-1), rows),
        }

    def overlap(self, items: int) -> Count:
        """How many of the first ``items`` evaluation words occurred among the training words of length n (claim C35).

        Exact: regenerates on the CPU the words number step * batch + row of every step that trains length n, five million
        at the paper's setting, in a fraction of a minute.
        """
        rows = torch.arange(items, dtype=torch.int64)
        wanted = self._letters(randomness.EVALUATION, rows, self.config.length)
        hits = occurring(wanted, self._full_length_training_words(), len(self.alphabet))
        return Count(hits.sum().to(torch.float64), items)

    def _full_length_training_words(self) -> Iterator[Tensor]:
        last = self.steps * self.batch
        for start in range(self.curriculum.first_full_step() * self.batch, last, _OVERLAP_BLOCK):
            rows = torch.arange(start, min(start + _OVERLAP_BLOCK, last), dtype=torch.int64)
            yield self._letters(randomness.WORDS, rows, self.config.length)

    def _letters(self, stream: int, rows: Tensor, length: int) -> Tensor:
        """Indices into the alphabet, ``[rows, length]``. The counter's step stays 0: an index is unique by itself."""
        return randomness.integers(self.seed, stream, 0, rows, length, len(self.alphabet), rows.device)

    def _scored(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and targets of the scored positions. A slice, not a mask: unscored logits take no part in any gradient,
        and shapes stay static."""
        logits = logits[..., self._offset :, :]
        return logits, batch.targets[..., self._offset :].expand(logits.shape[:-1])
