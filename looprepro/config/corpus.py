"""The manifest of a prepared corpus: what was read, the tokenizer, and every file of tokens with its checksum.

    data/<name>/manifest.json          this, written last: without it the corpus is not finished
    data/<name>/tokenizer.json         byte-level BPE of the ``tokenizers`` package
    data/<name>/counts.bin             uint64 [vocabulary]: how often each token occurs in the training split
    data/<name>/<split>-00000.tokens   uint16 or uint32: whole documents end to end, each closed by <|eos|>
    data/<name>/<split>-00000.lengths  uint32: tokens of each document, <|eos|> included

All integers are little-endian.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from looprepro.config.base import Frozen
from looprepro.files.checksum import sha256_bytes
from looprepro.files.errors import StoreError
from looprepro.files.json_files import canonical_json, read_json

EOS = 1
"""Id of <|eos|> in every tokenizer of ours; it closes every document."""
PAD = 2
"""Id of <|pad|>. Id 0 is <|bos|>, which stands there for Parcae's layout and is never used."""
SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|pad|>")
SPLITS = ("train", "validation")


class Shard(Frozen):
    """One pair of files."""

    name: str = Field(pattern=r"^(train|validation)-[0-9]{5}$")
    """File name without ending."""
    documents: int = Field(ge=0)
    tokens: int = Field(ge=0)
    """Real tokens: every document's text and its <|eos|>."""
    tokens_sha256: str
    lengths_sha256: str


class CorpusManifest(Frozen):
    """See the module."""

    schema_version: Literal[1] = 1
    kind: Literal["language"] = "language"
    source: dict[str, Any]
    """Where the text came from: data set and revision, packages and versions, or files with checksums."""
    vocabulary: int
    tokenizer_sha256: str
    counts_sha256: str
    dtype: Literal["uint16", "uint32"]
    validation_share: float
    """Share of documents whose hash puts them into the validation split."""
    shards: tuple[Shard, ...]

    def split(self, name: str) -> list[Shard]:
        """The shards of ``train`` or ``validation``, in order."""
        return [shard for shard in self.shards if shard.name.startswith(f"{name}-")]

    def documents(self, split: str) -> int:
        """Documents of a split."""
        return sum(shard.documents for shard in self.split(split))

    def tokens(self, split: str) -> int:
        """Real tokens of a split."""
        return sum(shard.tokens for shard in self.split(split))

    @cached_property
    def content(self) -> str:
        """SHA-256 of what is trained on: tokenizer and shards. The source's description takes no part."""
        parts = {"tokenizer": self.tokenizer_sha256, "dtype": self.dtype, "shards": [s.model_dump() for s in self.shards]}
        return sha256_bytes(canonical_json(parts).encode())


def read_manifest(folder: Path) -> CorpusManifest:
    """The manifest in ``folder``. :class:`StoreError` where there is none, or none that can be read."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise StoreError(
            f"{folder} holds no prepared text",
            "Prepare it: looprepro data prepare offline-smoke (no network), --text FILES, or fineweb-edu; looprepro data list",
        )
    document = read_json(path)
    try:
        return CorpusManifest.model_validate(document)
    except ValidationError as error:
        raise StoreError(
            f"{path} is not the manifest of a text corpus: {error.errors()[0]['msg']}", "Remove the folder and prepare it again"
        ) from error
