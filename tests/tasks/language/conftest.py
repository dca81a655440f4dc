"""A corpus written by hand: documents of known tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from looprepro.config.corpus import EOS, CorpusManifest, Shard
from looprepro.files.checksum import sha256_bytes
from looprepro.files.json_files import write_json

VOCABULARY = 300


def write_corpus(
    folder: Path, train: Sequence[Sequence[Sequence[int]]], validation: Sequence[Sequence[int]], vocabulary: int = VOCABULARY
) -> Path:
    """``train``: shards of documents of token ids, without their <|eos|>; ``validation``: one shard."""
    folder.mkdir(parents=True)
    shards = []
    counts = np.zeros(vocabulary, "<u8")

    def write(name: str, data: bytes) -> str:
        (folder / name).write_bytes(data)
        return sha256_bytes(data)

    named = [(f"train-{i:05d}", shard) for i, shard in enumerate(train)] + [("validation-00000", validation)]
    for name, documents in named:
        tokens = np.array([token for document in documents for token in (*document, EOS)], "<u2")
        lengths = np.array([len(document) + 1 for document in documents], "<u4")
        sums = {ending: write(f"{name}.{ending}", a.tobytes()) for ending, a in (("tokens", tokens), ("lengths", lengths))}
        shards.append(
            Shard(
                name=name,
                documents=len(documents),
                tokens=len(tokens),
                tokens_sha256=sums["tokens"],
                lengths_sha256=sums["lengths"],
            )
        )
        if name.startswith("train"):
            counts += np.bincount(tokens, minlength=vocabulary).astype("<u8")
    manifest = CorpusManifest(
        source={"name": "by hand"},
        vocabulary=vocabulary,
        tokenizer_sha256=write("tokenizer.json", b"{}"),
        counts_sha256=write("counts.bin", counts.tobytes()),
        dtype="uint16",
        validation_share=0.1,
        shards=tuple(shards),
    )
    write_json(folder / "manifest.json", manifest.model_dump(mode="json"))
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[..., Path]:
    """``corpus(train, validation)``: the folder."""
    return lambda train, validation=((5, 6, 7, 8),), **more: write_corpus(tmp_path / "corpus", train, validation, **more)
