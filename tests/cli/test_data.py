"""``looprepro data``: prepare text of one's own, list it, and what a wrong request is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.cli.data import amount
from looprepro.files.errors import ConfigError


def test_text_of_ones_own_is_prepared_planned_and_listed(here: Path, looprepro: Callable[..., Any]) -> None:
    (here / "mine.jsonl").write_text(
        "".join(json.dumps({"text": f"number {i} of many numbers " * 9}) + "\n" for i in range(80))
    )
    done = looprepro("data", "prepare", "--text", "mine.jsonl", "--vocabulary", "270", "--sequence", "32")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("data/mine: text: ")
    assert "vocabulary 270" in first
    assert second.startswith("data/mine: ")
    assert "rows of 32 tokens" in second
    assert float(second.split("% padding")[0].split()[-1]) < 1.0
    assert (here / "data" / "mine" / "packing-train-33.npz").is_file()
    listed = looprepro("data", "list", "--json")
    document = json.loads(listed.stdout)
    assert document["prepared"]["mine"]["manifest"]["vocabulary"] == 270
    assert "fineweb-edu" in document["known"]
    plain = looprepro("data", "list").stdout.splitlines()
    assert plain[0].startswith("mine ")
    assert any(line.startswith("offline-smoke") and "not prepared" in line for line in plain)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("finewebedu",), "unknown data set 'finewebedu'"),
        ((), "no data set named"),
        (("offline-smoke", "--revision", "main"), "--revision means nothing for offline-smoke"),
        (("fineweb-edu", "--tokens", "many"), "'many' is not a number of tokens"),
        (("--text", "nothing.txt"), "nothing.txt does not exist"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, here: Path, looprepro: Callable[..., Any]
) -> None:
    done = looprepro("data", "prepare", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "data").exists()


def test_amounts() -> None:
    assert [amount(text) for text in ("5B", "1.2b", "300M", "20k", "1_000", "7")] == [
        5_000_000_000,
        1_200_000_000,
        300_000_000,
        20_000,
        1000,
        7,
    ]
    for wrong in ("", "B", "5T", "-1M", "0", "nan"):
        with pytest.raises(ConfigError):
            amount(wrong)
