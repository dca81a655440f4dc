"""Write documents as shards of integers, one pair of splits at a time, and remember how far the source was read.

A shard number stands for a range of the source's documents: ``train-00003`` and ``validation-00003`` hold those of its
documents that belong to each split. Both are written, then ``progress.json`` takes them up together with the source's
cursor, so a killed run goes on after the last complete pair, and what it left half done is written over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from looprepro.config.corpus import SPLITS, Shard
from looprepro.files.atomic import write_bytes
from looprepro.files.checksum import sha256_bytes, sha256_file
from looprepro.files.errors import StoreError
from looprepro.files.json_files import read_json, write_json

PROGRESS = "progress.json"
REMEDY = "Remove the folder and run the same command again"


def token_dtype(vocabulary: int) -> str:
    """The smallest type that holds every id."""
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


@dataclass
class ShardWriter:
    """Collects encoded documents and writes them out. One writer per folder at a time."""

    folder: Path
    request: Mapping[str, Any]
    """What decides the content (source, tokenizer, vocabulary, shares): a folder goes on only under an equal one."""
    dtype: str
    shards: list[Shard] = field(default_factory=list)
    documents: int = 0
    """Of the source, in shards or collected."""
    cursor: Any = None
    """Where the source stands after the last complete shard; None at the start."""
    _pending: dict[str, list[np.ndarray]] = field(default_factory=lambda: {split: [] for split in SPLITS})

    @classmethod
    def open(cls, folder: Path, request: Mapping[str, Any], vocabulary: int) -> ShardWriter:
        """A writer that goes on where an earlier one stopped.

        :class:`StoreError` where the folder was begun with another request, or one of its shards is damaged.
        """
        writer = cls(folder, request, token_dtype(vocabulary))
        path = folder / PROGRESS
        if not path.is_file():
            return writer
        earlier = read_json(path)
        if earlier.get("request") != dict(request):
            raise StoreError(f"{folder} was begun with other settings", "Choose another --out, or remove the folder first")
        writer.shards = [Shard.model_validate(shard) for shard in earlier["shards"]]
        writer.documents, writer.cursor = int(earlier["documents"]), earlier["cursor"]
        for shard in writer.shards:
            check_shard(folder, shard)
        return writer

    @property
    def tokens(self) -> int:
        """Training tokens, in shards or collected."""
        return sum(s.tokens for s in self.shards if s.name.startswith("train")) + self.pending_tokens

    @property
    def pending_tokens(self) -> int:
        """Training tokens collected for the next shard."""
        return sum(len(document) for document in self._pending["train"])

    @property
    def pending(self) -> bool:
        """Whether any document, held out or not, waits for the next shard."""
        return any(self._pending.values())

    def add(self, split: str, ids: Sequence[int]) -> int:
        """Collect one document, its <|eos|> included; returns its number of tokens."""
        self._pending[split].append(np.asarray(ids, dtype=self.dtype))
        return len(ids)

    def flush(self, cursor: Any) -> None:
        """Write what is collected as the next pair of shards; ``cursor``: where the source stands now (JSON)."""
        number = len(self.shards) // len(SPLITS)
        written = [self._write(f"{split}-{number:05d}", self._pending[split]) for split in SPLITS]
        self.shards += written
        self.cursor = cursor
        self._pending = {split: [] for split in SPLITS}
        record = {
            "request": dict(self.request),
            "documents": self.documents,
            "cursor": cursor,
            "shards": [shard.model_dump() for shard in self.shards],
        }
        write_json(self.folder / PROGRESS, record)

    def _write(self, name: str, documents: list[np.ndarray]) -> Shard:
        tokens = np.concatenate(documents) if documents else np.zeros(0, self.dtype)
        lengths = np.array([len(document) for document in documents], dtype="<u4")
        parts = {"tokens": tokens.astype(f"<{np.dtype(self.dtype).str[1:]}").tobytes(), "lengths": lengths.tobytes()}
        for ending, data in parts.items():
            write_bytes(self.folder / f"{name}.{ending}", data)
        sums = {ending: sha256_bytes(data) for ending, data in parts.items()}
        return Shard(
            name=name,
            documents=len(documents),
            tokens=len(tokens),
            tokens_sha256=sums["tokens"],
            lengths_sha256=sums["lengths"],
        )


def check_shard(folder: Path, shard: Shard) -> None:
    """:class:`StoreError` where a file of ``shard`` is missing or does not match its checksum."""
    for ending, wanted in (("tokens", shard.tokens_sha256), ("lengths", shard.lengths_sha256)):
        path = folder / f"{shard.name}.{ending}"
        if not path.is_file():
            raise StoreError(f"{path} is missing", REMEDY)
        if sha256_file(path) != wanted:
            raise StoreError(f"{path} does not match its checksum", REMEDY)


def count_tokens(folder: Path, shards: Sequence[Shard], dtype: str, vocabulary: int) -> np.ndarray:
    """How often each token occurs in ``shards``: uint64 ``[vocabulary]``."""
    counts = np.zeros(vocabulary, dtype=np.uint64)
    for shard in shards:
        tokens = np.fromfile(folder / f"{shard.name}.tokens", dtype=f"<{np.dtype(dtype).str[1:]}")
        counts += np.bincount(tokens, minlength=vocabulary).astype(np.uint64)
    return counts
