"""Cells of the language family that train in a fraction of a second, and a text that needs no files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Injection, LanguageTask, LanguageTraining, LoopedTransformer, Recurrence
from looprepro.tasks.task import UNSCORED, Batch

VOCABULARY, SEQUENCE = 300, 8


MakeLanguageCell = Callable[..., Cell]


class Counting:
    """Rows that count upwards from a random number; the last row of every four has padding."""

    max_time = SEQUENCE
    validation_rows = 1000

    def examples(self, rows: Tensor, step: int) -> Batch:
        return self._batch(randomness.WORDS, rows)

    def evaluation_examples(self, rows: Tensor) -> Batch:
        return self._batch(randomness.EVALUATION, rows)

    def digest(self) -> Tensor:
        return torch.tensor([5])

    def require(self, digest: Tensor) -> None:
        assert digest.tolist() == [5]

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        losses = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=UNSCORED, reduction="none")
        return losses.view(batch.targets.shape).sum(dim=1)

    def _batch(self, stream: int, rows: Tensor) -> Batch:
        start = randomness.integers(5, stream, 0, rows, 1, VOCABULARY)
        text = (start + torch.arange(SEQUENCE + 1)) % VOCABULARY
        filled = torch.where(rows % 4 == 3, SEQUENCE // 2, SEQUENCE)
        scored = torch.arange(SEQUENCE) < filled[:, None]
        return Batch(text[:, :-1], text[:, 1:].masked_fill(~scored, UNSCORED), scored, rows)


@pytest.fixture
def corpus_of(tmp_path: Path) -> Callable[[int], Path]:
    """``corpus_of(vocabulary)``: a folder with a prepared text of 40 documents that count upwards, 4 of them held out."""
    spec = importlib.util.spec_from_file_location("corpora", Path(__file__).parents[2] / "tasks" / "language" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    documents = [[3 + (start * 7 + i) % 200 for i in range(20 + start % 5)] for start in range(40)]

    def write(vocabulary: int) -> Path:
        folder: Path = module.write_corpus(
            tmp_path / "corpus", [documents[:20], documents[20:36]], documents[36:], vocabulary=vocabulary
        )
        return folder

    return write


@pytest.fixture
def corpus(corpus_of: Callable[[int], Path]) -> Path:
    """The text of :func:`language_cell`."""
    return corpus_of(VOCABULARY)


@pytest.fixture
def text() -> Counting:
    """A text without files."""
    return Counting()


@pytest.fixture
def language_cell() -> MakeLanguageCell:
    """``language_cell(seed=, backprop_depth=, injection=, data=, **training)``: 6 steps of 8 rows in micro-batches of 2."""
    return _language_cell


def _language_cell(
    seed: int = 1,
    backprop_depth: int | None = 2,
    injection: Injection | None = None,
    data: Path | str = "none",
    **training: Any,
) -> Cell:
    scheme = "poisson-truncated-full" if backprop_depth else "poisson-full"
    settings = {"tokens": 6 * 8 * SEQUENCE, "batch_tokens": 8 * SEQUENCE, "micro_batch": 2, "dtype": "float32"}
    return Cell(
        task=LanguageTask(data=str(data), vocabulary=VOCABULARY, sequence=SEQUENCE),
        model=LoopedTransformer(
            width=16,
            heads=2,
            prelude_layers=1,
            core_layers=1,
            coda_layers=1,
            value_embeddings=True,
            injection=injection or Injection(method="conformal", groups=2),
            recurrence=Recurrence(scheme=scheme, mean=3.0, maximum=None, backprop_depth=backprop_depth),
        ),
        training=LanguageTraining.model_validate(settings | {"validate_every": 3, "validation_rows": 5} | training),
        seed=seed,
    )
