"""The language task: packed rows of text by index, cross-entropy per row, and what is held out.

Training row number i of a run is row ``order(epoch)[i mod R]`` of the packing plan, epoch i // R: every row is read once
per epoch, and its place is a function of the seed and of i alone (looprepro/randomness.py), so a resumed run, another
number of ranks or of workers reads the same. Token budgets count real tokens: padding is neither trained nor scored.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from looprepro import randomness
from looprepro.config.corpus import EOS, PAD
from looprepro.config.tasks import LanguageTask
from looprepro.files.errors import ConfigError, StoreError
from looprepro.tasks.language.packing import Packing, keep, kept, pack, plan_file
from looprepro.tasks.language.reader import Corpus, Split
from looprepro.tasks.task import UNSCORED, Batch, Count

_ORDER_BLOCK = 1 << 16
"""Rows whose random keys are drawn at a time: bounds the memory of an epoch's order."""


class LanguageRows:
    """Text of a prepared corpus for one run."""

    def __init__(self, config: LanguageTask, seed: int, corpus: Corpus) -> None:
        """:class:`ConfigError` where the corpus is not the one that ``config`` describes."""
        self.config = config
        self.seed = seed
        self.corpus = corpus
        manifest = self.corpus.manifest
        if manifest.vocabulary != config.vocabulary:
            raise ConfigError(
                f"the corpus {config.data} has {manifest.vocabulary} token ids, task.vocabulary says {config.vocabulary}",
                f"Set task.vocabulary={manifest.vocabulary}, or prepare it with --vocabulary {config.vocabulary}",
            )
        if config.content is not None and config.content != manifest.content:
            raise ConfigError(
                f"the corpus {config.data} has the content {manifest.content}, task.content says {config.content}",
                "Prepare the corpus from the same text and versions, or leave task.content out",
            )
        self._orders: dict[int, np.ndarray] = {}

    @property
    def vocabulary(self) -> int:
        """Token ids."""
        return self.config.vocabulary

    @property
    def max_time(self) -> int:
        """Positions of a row."""
        return self.config.sequence

    @property
    def content(self) -> str:
        """SHA-256 of the corpus: belongs into every result."""
        return self.corpus.manifest.content

    def digest(self) -> Tensor:
        """:attr:`content` as 32 bytes, uint8: a checkpoint carries them, so that it is never continued on other text."""
        return torch.tensor(list(bytes.fromhex(self.content)), dtype=torch.uint8)

    def require(self, digest: Tensor) -> None:
        """:class:`StoreError` where a checkpoint's ``digest`` is not this corpus's."""
        trained_on = bytes(digest.tolist()).hex()
        if trained_on != self.content:
            raise StoreError(
                f"trained on {self.config.data} of content {trained_on[:12]}, "
                f"but {self.corpus.folder} now holds {self.content[:12]}",
                "Put the earlier corpus back, or train again into another --runs folder",
            )

    def length(self, step: int) -> int:
        """Positions of a training row, at every step."""
        return self.config.sequence

    @cached_property
    def packing(self) -> Packing:
        """The plan of the training rows."""
        return self._plan("train", self.corpus.train)

    @cached_property
    def validation_packing(self) -> Packing:
        """The plan of the held-out rows."""
        return self._plan("validation", self.corpus.validation)

    def _plan(self, name: str, split: Split) -> Packing:
        row_tokens = self.config.sequence + 1
        return kept(plan_file(self.corpus.folder, name, row_tokens), row_tokens, self.content) or pack(
            split.lengths, row_tokens
        )

    def keep_plans(self) -> None:
        """Save both plans beside the shards, for every run that follows."""
        for name, plan in (("train", self.packing), ("validation", self.validation_packing)):
            keep(plan_file(self.corpus.folder, name, plan.row_tokens), plan, self.content)

    @cached_property
    def _scored(self) -> np.ndarray:
        return np.maximum(self.packing.filled - 1, 0)

    @property
    def rows_per_epoch(self) -> int:
        """R: training rows."""
        return self.packing.rows

    @property
    def validation_rows(self) -> int:
        """Held-out rows."""
        return self.validation_packing.rows

    def real_tokens(self, rows: Tensor) -> Tensor:
        """Targets that :meth:`loss` of training rows number ``rows`` sums over: int64 ``[rows]``; reads no text."""
        return torch.from_numpy(self._scored[self._places(rows.cpu().numpy())])

    def examples(self, rows: Tensor, step: int = 0) -> Batch:
        """Training rows number ``rows`` (int64 ``[rows]``: the run's count of rows so far); ``step`` changes nothing."""
        return self._batch(self.corpus.train, self.packing, self._places(rows.cpu().numpy()), rows)

    def evaluation_examples(self, rows: Tensor) -> Batch:
        """Held-out rows number ``rows`` below :attr:`validation_rows`, packed like training rows, in the plan's order.

        :class:`ConfigError` where there are not so many.
        """
        if rows.numel() and int(rows.max()) >= self.validation_rows:
            raise ConfigError(
                f"validation row {int(rows.max())} of {self.validation_rows} is asked for",
                "Ask for fewer rows, or hold out more: looprepro data prepare --validation",
            )
        return self._batch(self.corpus.validation, self.validation_packing, rows.cpu().numpy(), rows)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy summed over the real targets of each row, ``[rows, time, vocabulary]`` to ``[rows]``, in float32
        (float64 stays). Nats; divide by :meth:`real_tokens` of the whole step for its mean."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), ignore_index=UNSCORED, reduction="none")
        return losses.reshape(batch.targets.shape).sum(dim=-1)

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, Count]:
        """``loss``: nats per real target."""
        return {"loss": Count(self.loss(logits, batch).to(torch.float64).sum(), int(batch.scored.sum()))}

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the plan that the run's rows are."""
        count = self.rows_per_epoch
        epochs = rows // count
        places = np.empty_like(rows)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            places[here] = self._order(epoch)[rows[here] % count]
        return places

    def _order(self, epoch: int) -> np.ndarray:
        """The order of an epoch: int64 ``[R]``, a permutation drawn by seed and epoch."""
        if epoch not in self._orders:
            keys = []
            for start in range(0, self.rows_per_epoch, _ORDER_BLOCK):
                rows = torch.arange(start, min(start + _ORDER_BLOCK, self.rows_per_epoch), dtype=torch.int64)
                drawn = randomness.words(self.seed, randomness.WORDS, epoch, rows, 2).numpy().astype(np.uint64)
                keys.append(drawn[:, 0] << np.uint64(32) | drawn[:, 1])
            newest = max([epoch, *self._orders])
            self._orders = {e: order for e, order in self._orders.items() if e >= newest - 1}
            self._orders[epoch] = np.argsort(np.concatenate(keys), kind="stable")
        return self._orders[epoch]

    def _batch(self, split: Split, plan: Packing, places: np.ndarray, rows: Tensor) -> Batch:
        read = np.full((len(places), plan.row_tokens), PAD, dtype=np.int64)
        filled = np.zeros((len(places), 1), dtype=np.int64)
        for i, place in enumerate(places.tolist()):
            at = 0
            for piece in range(int(plan.first[place]), int(plan.first[place + 1])):
                count = int(plan.counts[piece])
                read[i, at : at + count] = split.read(int(plan.starts[piece]), count)
                at += count
            filled[i] = at
        tokens = torch.from_numpy(read)
        scored = torch.from_numpy(np.arange(1, plan.row_tokens) < filled)
        inputs, targets = tokens[:, :-1], tokens[:, 1:].masked_fill(~scored, UNSCORED)
        documents = documents_of(inputs) if self.config.document_mask else None
        return Batch(inputs.contiguous(), targets, scored, rows.cpu(), documents).to(rows.device)


def documents_of(tokens: Tensor) -> Tensor:
    """Number of the document in its row that each position belongs to, from 0: int64 ``[rows, time]``. An <|eos|> belongs
    to the document that it closes."""
    ends = (tokens == EOS).to(torch.int64)
    return ends.cumsum(dim=-1) - ends
