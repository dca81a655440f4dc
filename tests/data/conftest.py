"""Small texts, and a corpus prepared from them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from looprepro.data.local import LocalText
from looprepro.data.prepare import Progress, Request, prepare

TEXT = "the loop turns a state in its plane and the norm of each group falls while angles stay as they were"
WORDS = TEXT.split()


def story(seed: int, words: int) -> str:
    """Text of ``words`` words that depends on ``seed`` alone."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) + str(draw.randrange(50)) * (draw.random() < 0.2) for _ in range(words)) + "."


def write_stories(folder: Path, count: int = 60) -> Path:
    """``count`` documents in a jsonl file and two text files."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": story(i, 5 + i % 37), "id": i}) for i in range(count)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "b.txt").write_text(story(1000, 300))
    (folder / "c.md").write_text("Ünïcode, 日本 and <|eos|> in a text.\n" + story(1001, 20))
    return folder


def silent(progress: Progress) -> None:
    """No report."""


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    return write_stories(tmp_path / "text")


@pytest.fixture
def prepared(tmp_path: Path, stories: Path) -> Callable[..., Path]:
    """``prepared(tokens=..., shard_tokens=...)``: the folder of a corpus made from the stories."""

    def make(name: str = "corpus", **settings: object) -> Path:
        folder = tmp_path / name
        prepare(LocalText([stories]), folder, Request(**({"vocabulary": 300, "validation_share": 0.2} | settings)), silent)
        return folder

    return make
