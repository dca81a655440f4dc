"""What a puzzle hands to the trainer of reasoners: inputs, targets, identifiers, difficulty; and how answers are graded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from looprepro.tasks.task import UNSCORED, Count

PAD = 0
"""Token of a position that holds nothing; also the pad of the common file format."""


@dataclass(frozen=True, eq=False)
class PuzzleBatch:
    """Some puzzles of one size."""

    inputs: Tensor
    """Int64 ``[rows, time]``: tokens, :data:`PAD` where there is nothing."""
    targets: Tensor
    """Int64 ``[rows, time]``: the answer; :data:`looprepro.tasks.task.UNSCORED` where nothing is trained or scored."""
    puzzle_ids: Tensor
    """Int64 ``[rows]``: 0 is the blank identifier, which all puzzles but ARC use."""
    difficulty: Tensor
    """Float64 ``[rows]``: empty cells, steps of the path, letters; 0 where the task has no measure of it."""
    rows: Tensor
    """Int64 ``[rows]``: the index of each example in its stream."""

    def to(self, device: torch.device | str) -> PuzzleBatch:
        """The same examples on ``device``."""
        return PuzzleBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


class PuzzleTask(Protocol):
    """Examples by index and their grading. Knows no model; an example is a pure function of seed and index."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids; also the width of the logits."""

    @property
    def time(self) -> int:
        """Positions of a training batch."""

    @property
    def evaluation_time(self) -> int:
        """Positions of an evaluation batch."""

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns that the positions are read from, row by row; None: a sequence."""

    @property
    def causal(self) -> bool:
        """Whether a position may depend on earlier ones alone."""

    @property
    def puzzle_identifiers(self) -> int:
        """Rows of the puzzle table, the blank one included; 0: the task has none and takes no prefix."""

    @property
    def evaluation_limit(self) -> int | None:
        """How many evaluation examples exist; None: any number."""

    def examples(self, rows: Tensor, step: int) -> PuzzleBatch:
        """Training examples number ``rows`` (int64 ``[rows]``); they do not depend on ``step``."""

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """Evaluation examples, none of which is a training example or a symmetric image of one."""

    def metrics(self, logits: Tensor, batch: PuzzleBatch) -> dict[str, Count]:
        """Sums over rows of ``logits`` ``[rows, time, vocabulary]``: ``exact_accuracy`` (every scored position right) and
        ``token_accuracy`` (mean over rows of the share of right positions); one value per position where positions have
        an order (``prefix_accuracy`` ``[time]``: this and all earlier ones right)."""

    def pooled_metrics(self, answers: Tensor, confidence: Tensor, rows: Tensor) -> dict[str, Count]:
        """What is no mean over items: ``answers`` int64 ``[items, time]`` and ``confidence`` float64 ``[items]`` of all
        evaluation examples ``rows`` together. ``score`` is the number that the paper's tables count."""

    def submission(self, rows: Tensor, answers: Tensor, confidence: Tensor) -> dict[str, Any] | None:
        """The same answers as the file that the benchmark's own scorer reads; None where it reads none."""


class Shape(Protocol):
    """What a task's configuration says of its size."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""

    @property
    def time(self) -> int:
        """Positions of a training batch."""


class Graded:
    """The size that the configuration says, and grading by exact match: shared by all puzzles."""

    config: Shape
    causal = False
    puzzle_identifiers = 0
    evaluation_limit: int | None = None
    grid: tuple[int, int] | None = None

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self.config.vocabulary

    @property
    def time(self) -> int:
        """Positions of a training batch."""
        return self.config.time

    @property
    def evaluation_time(self) -> int:
        """Positions of an evaluation batch: those of training."""
        return self.time

    def metrics(self, logits: Tensor, batch: PuzzleBatch) -> dict[str, Count]:
        """See :class:`PuzzleTask`."""
        scored = batch.targets != UNSCORED
        right = (logits.argmax(dim=-1) == batch.targets) & scored
        share = right.sum(dim=-1).to(torch.float64) / scored.sum(dim=-1).clamp(min=1)
        exact = (right == scored).all(dim=-1).to(torch.float64)
        return {"exact_accuracy": Count(exact.sum(), len(exact)), "token_accuracy": Count(share.sum(), len(share))}

    def pooled_metrics(self, answers: Tensor, confidence: Tensor, rows: Tensor) -> dict[str, Count]:
        """See :class:`PuzzleTask`: ``score``, the share of exact answers."""
        targets = self.evaluation_examples(rows).targets
        exact = ((answers == targets) | (targets == UNSCORED)).all(dim=-1).to(torch.float64)
        return {"score": Count(exact.sum(), len(exact))}

    def submission(self, rows: Tensor, answers: Tensor, confidence: Tensor) -> dict[str, Any] | None:
        """See :class:`PuzzleTask`: none."""
        return None

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """See :class:`PuzzleTask`."""
        raise NotImplementedError
