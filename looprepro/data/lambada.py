"""LAMBADA's test passages as one .jsonl file: what ``lambada_openai`` of lm-eval reads, from the hub's same data set."""

from __future__ import annotations

import json
from pathlib import Path

from looprepro.data.catalog import MANIFEST, OTHER_LAST_WORDS, Options, Say
from looprepro.data.hub import HubText
from looprepro.files.atomic import write_text
from looprepro.files.checksum import sha256_file
from looprepro.files.errors import StoreError
from looprepro.files.json_files import read_json, write_json

REPOSITORY = "EleutherAI/lambada_openai"
ITEMS = 5153
"""Passages of the test set."""


def prepare_lambada(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare lambada``: ``test.jsonl`` and a manifest with revision and checksum."""
    options.only("lambada", "revision")
    manifest = folder / MANIFEST
    if manifest.is_file():
        return str(read_json(manifest)["summary"])
    source = HubText(REPOSITORY, "default", options.revision, split="test", offline=OTHER_LAST_WORDS.capitalize(), say=say)
    described = source.describe()
    texts = list(source.documents())
    if not texts:
        raise StoreError(f"{REPOSITORY} gave no passage", "Run the same command again")
    if len(texts) != ITEMS:
        say(f"{len(texts)} passages, {ITEMS} were expected")
    path = folder / "test.jsonl"
    write_text(path, "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts))
    summary = f"LAMBADA (lambada_openai): {len(texts):,} passages; revision {described['revision'][:12]}"
    write_json(manifest, {"kind": "lambada", "source": described, "sha256": sha256_file(path), "summary": summary})
    return summary
