"""Read a prepared corpus: memory-mapped tokens behind checksums."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import numpy as np

from looprepro.config.corpus import CorpusManifest, Shard, read_manifest
from looprepro.files.checksum import sha256_file
from looprepro.files.errors import StoreError

_REMEDY = "Remove the folder and prepare the corpus again"


class Split:
    """The documents of one split, end to end: positions count tokens from 0 over all shards."""

    def __init__(self, folder: Path, shards: list[Shard], dtype: str) -> None:
        self.lengths = np.concatenate(
            [np.fromfile(folder / f"{shard.name}.lengths", dtype="<u4") for shard in shards] or [np.zeros(0, "<u4")]
        ).astype(np.int64)
        """Int64 ``[documents]``: tokens of each, <|eos|> included."""
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        """Int64 ``[documents + 1]``: position of each document's first token; last, the number of tokens."""
        kept = [shard for shard in shards if shard.tokens]
        self._first = [0, *np.cumsum([shard.tokens for shard in kept]).tolist()]
        self._maps = [
            np.memmap(folder / f"{shard.name}.tokens", dtype=f"<{dtype[0]}{_bytes(dtype)}", mode="r") for shard in kept
        ]

    @property
    def documents(self) -> int:
        """How many there are."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Real tokens in all."""
        return int(self.starts[-1])

    def read(self, start: int, count: int) -> np.ndarray:
        """Tokens ``start`` to ``start + count``, which lie in one document (and so in one shard)."""
        shard = bisect_right(self._first, start) - 1
        offset = start - self._first[shard]
        return np.asarray(self._maps[shard][offset : offset + count])

    def document(self, number: int) -> np.ndarray:
        """The tokens of one document, <|eos|> included."""
        return self.read(int(self.starts[number]), int(self.lengths[number]))


class Corpus:
    """A folder that ``looprepro data prepare`` finished. It is verified before anything is read: here, or by rank 0."""

    def __init__(self, folder: Path, verified: str | None = None) -> None:
        """``verified``: the content whose files another process has just verified; then only the manifest is compared.
        :class:`StoreError` where a file is missing or damaged, or the manifest is that of other content."""
        self.folder = folder
        self.manifest: CorpusManifest = read_manifest(folder)
        if verified is not None and verified != self.manifest.content:
            raise StoreError(
                f"{folder} has the content {self.manifest.content[:12]}, and rank 0 trains on {verified[:12]}",
                "Prepare the corpus on a disk that all ranks share, and name its folder in LOOPREPRO_DATA",
            )
        wanted = {"tokenizer.json": self.manifest.tokenizer_sha256, "counts.bin": self.manifest.counts_sha256}
        for shard in self.manifest.shards:
            wanted[f"{shard.name}.tokens"] = shard.tokens_sha256
            wanted[f"{shard.name}.lengths"] = shard.lengths_sha256
        for name, checksum in wanted.items():
            _check(folder / name, checksum if verified is None else None)
        self.train = Split(folder, self.manifest.split("train"), self.manifest.dtype)
        self.validation = Split(folder, self.manifest.split("validation"), self.manifest.dtype)

    def counts(self) -> np.ndarray:
        """How often each token occurs in the training split: uint64 ``[vocabulary]``."""
        return np.fromfile(self.folder / "counts.bin", dtype="<u8")


def _bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def _check(path: Path, checksum: str | None) -> None:
    if not path.is_file():
        raise StoreError(f"{path} is missing", _REMEDY)
    if checksum is not None and sha256_file(path) != checksum:
        raise StoreError(f"{path} does not match its checksum", _REMEDY)
