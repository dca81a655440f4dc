"""Turn a source of text into a prepared corpus: tokenizer, shards, manifest. Killed and called again, it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from looprepro.config.corpus import EOS, CorpusManifest, read_manifest
from looprepro.data.shards import PROGRESS, ShardWriter, count_tokens, token_dtype
from looprepro.data.source import Source
from looprepro.data.split import is_validation
from looprepro.data.tokenizer import CHARACTERS, DOCUMENT_CHARACTERS, load_tokenizer, train_tokenizer
from looprepro.files.atomic import write_bytes, write_text
from looprepro.files.checksum import sha256_bytes, sha256_file
from looprepro.files.errors import StoreError
from looprepro.files.json_files import write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BLOCK = 256
"""Documents encoded at a time (on all cores)."""
BLOCK_CHARACTERS = 4_000_000
"""Or fewer, where they are long."""


@dataclass(frozen=True)
class Progress:
    """How far a preparation is."""

    stage: str
    """``tokenizer`` (tokens are then characters read), ``tokens`` or ``finished``."""
    tokens: int
    wanted: int | None
    """Training tokens asked for; None: all there are."""
    documents: int
    seconds: float
    """Since this call began."""
    fresh_tokens: int
    """Of this call."""

    @property
    def remaining_seconds(self) -> float | None:
        """At this call's speed; None where it is not known."""
        if self.wanted is None or self.fresh_tokens == 0:
            return None
        return max(self.wanted - self.tokens, 0) * self.seconds / self.fresh_tokens


@dataclass(frozen=True)
class Request:
    """What to make of a source."""

    vocabulary: int
    validation_share: float
    tokens: int | None = None
    """Training tokens at which to stop (the document that reaches it is kept whole); None: all text."""
    tokenizer: Path | None = None
    """A tokenizer.json to use instead of training one."""
    tokenizer_characters: int = CHARACTERS
    shard_tokens: int = 50_000_000
    """Training tokens per shard, about."""
    least_validation: int = field(default=1)
    """Held-out documents that there must be."""


def prepare(source: Source, folder: Path, request: Request, report: Callable[[Progress], None]) -> CorpusManifest:
    """Write the corpus into ``folder`` and return its manifest; a finished one of the same request is returned as it is.

    :class:`StoreError` where the folder holds something else, a shard is damaged, or the text is too little.
    """
    description = source.describe()
    wanted = {
        "source": description,
        "vocabulary": request.vocabulary,
        "validation_share": request.validation_share,
        "tokens": request.tokens,
        "tokenizer": sha256_file(request.tokenizer) if request.tokenizer else request.tokenizer_characters,
        "shard_tokens": request.shard_tokens,
    }
    writer = ShardWriter.open(folder, wanted, request.vocabulary)
    if (folder / "manifest.json").is_file():
        if not writer.shards:
            raise StoreError(f"{folder} holds another prepared data set", "Choose another --out, or remove the folder first")
        return read_manifest(folder)
    if not (folder / PROGRESS).is_file() and folder.is_dir() and any(_foreign(folder)):
        raise StoreError(f"{folder} holds files that are not ours", "Choose another --out")
    tokenizer = _tokenizer(source, folder, request, report)
    _write_shards(source, writer, tokenizer, request, report)
    return _finish(folder, writer, request, description)


def _foreign(folder: Path) -> Iterator[Path]:
    """Files that no preparation of ours leaves behind when it is killed."""
    for path in folder.iterdir():
        ours = path.name == "tokenizer.json" or path.suffix in (".tokens", ".lengths", ".tmp")
        if not ours:
            yield path


def _tokenizer(source: Source, folder: Path, request: Request, report: Callable[[Progress], None]) -> Tokenizer:
    """The tokenizer of the folder: found, copied or trained on the training split."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        if request.tokenizer is not None:
            load_tokenizer(request.tokenizer)
            write_bytes(path, request.tokenizer.read_bytes())
        else:
            texts = _watched(source.documents(), request.tokenizer_characters, report)
            kept = (text for text in texts if not is_validation(text, request.validation_share))
            write_text(path, train_tokenizer(kept, request.vocabulary, request.tokenizer_characters).to_str())
    tokenizer = load_tokenizer(path)
    if tokenizer.get_vocab_size() != request.vocabulary:
        raise StoreError(
            f"{path} has {tokenizer.get_vocab_size()} entries, {request.vocabulary} are wanted",
            f"Ask for --vocabulary {tokenizer.get_vocab_size()}, or leave out --tokenizer",
        )
    return tokenizer


def _watched(texts: Iterator[str], wanted: int, report: Callable[[Progress], None]) -> Iterator[str]:
    """``texts``, with a report of the characters read now and then."""
    began, characters = time.monotonic(), 0
    for documents, text in enumerate(texts, start=1):
        if documents % BLOCK == 1:
            report(Progress("tokenizer", characters, wanted, documents - 1, time.monotonic() - began, characters))
        characters += min(len(text), DOCUMENT_CHARACTERS)
        yield text


def _write_shards(
    source: Source, writer: ShardWriter, tokenizer: Tokenizer, request: Request, report: Callable[[Progress], None]
) -> None:
    limit = request.tokens
    began, before = time.monotonic(), writer.tokens

    def told(stage: str) -> None:
        done = writer.tokens
        report(Progress(stage, done, limit, writer.documents, time.monotonic() - began, done - before))

    texts = source.documents(writer.cursor)
    reached = writer.tokens
    pending = 0
    while limit is None or reached < limit:
        block = _block(texts)
        if not block:
            break
        for text, encoding in zip(block, tokenizer.encode_batch_fast(block, add_special_tokens=False), strict=True):
            if limit is not None and reached >= limit:
                break
            held_out = is_validation(text, request.validation_share)
            length = writer.add("validation" if held_out else "train", [*encoding.ids, EOS])
            writer.documents += 1
            if not held_out:
                reached += length
                pending += length
        told("tokens")
        if pending >= request.shard_tokens:
            writer.flush(source.cursor())
            pending = 0
    if writer.pending or not writer.shards:
        writer.flush(source.cursor())
    told("finished")


def _block(texts: Iterator[str]) -> list[str]:
    """The next documents, none where there are no more."""
    block: list[str] = []
    characters = 0
    for text in islice(texts, BLOCK):
        block.append(text)
        characters += len(text)
        if characters >= BLOCK_CHARACTERS:
            break
    return block


def _finish(folder: Path, writer: ShardWriter, request: Request, description: dict[str, object]) -> CorpusManifest:
    train = [shard for shard in writer.shards if shard.name.startswith("train")]
    held_out = sum(shard.documents for shard in writer.shards if shard not in train)
    if not sum(shard.documents for shard in train) or held_out < request.least_validation:
        raise StoreError(
            f"{writer.documents} documents leave too little to train on or to hold out",
            "Give more text, or another --validation share",
        )
    counts = count_tokens(folder, train, writer.dtype, request.vocabulary).astype("<u8").tobytes()
    write_bytes(folder / "counts.bin", counts)
    manifest = CorpusManifest(
        source=description,
        vocabulary=request.vocabulary,
        tokenizer_sha256=sha256_file(folder / "tokenizer.json"),
        counts_sha256=sha256_bytes(counts),
        dtype="uint16" if token_dtype(request.vocabulary) == "uint16" else "uint32",
        validation_share=request.validation_share,
        shards=tuple(writer.shards),
    )
    write_json(folder / "manifest.json", manifest.model_dump(mode="json"))
    return manifest
