"""Preparing a corpus: what is on disk is the text; killed and rerun it goes on; what is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looprepro.config.corpus import EOS, read_manifest
from looprepro.data import prepare as module
from looprepro.data.local import LocalText
from looprepro.data.prepare import Progress, Request, prepare
from looprepro.data.split import is_validation
from looprepro.data.tokenizer import load_tokenizer
from looprepro.files.errors import ConfigError, StoreError

REQUEST = Request(vocabulary=300, validation_share=0.2, shard_tokens=600)


def silent(progress: Progress) -> None:
    """No report."""


def documents(folder: Path, split: str) -> list[str]:
    """The texts of a split, decoded."""
    manifest = read_manifest(folder)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    found = []
    for shard in manifest.split(split):
        tokens = np.fromfile(folder / f"{shard.name}.tokens", dtype="<u2")
        lengths = np.fromfile(folder / f"{shard.name}.lengths", dtype="<u4")
        for ids in np.split(tokens, np.cumsum(lengths)[:-1]):
            assert ids[-1] == EOS
            assert EOS not in ids[:-1]
            found.append(tokenizer.decode(ids[:-1].tolist(), skip_special_tokens=False))
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 7)


def test_every_document_is_there_once_and_reads_as_it_was(stories: Path, prepared: Callable[..., Path]) -> None:
    source = list(LocalText([stories]).documents())
    folder = prepared()
    train, validation = documents(folder, "train"), documents(folder, "validation")
    assert sorted(train + validation) == sorted(source)
    assert validation == [text for text in source if is_validation(text, 0.2)]
    assert 4 <= len(validation) <= 25
    manifest = read_manifest(folder)
    assert manifest.documents("train") == len(train)
    assert manifest.tokens("train") == int(np.fromfile(folder / "counts.bin", dtype="<u8").sum())
    assert np.fromfile(folder / "counts.bin", dtype="<u8")[EOS] == len(train)
    assert [f["name"] for f in manifest.source["files"]] == ["a.jsonl", "b.txt", "c.md"]


def test_a_document_is_held_out_whatever_stands_around_it() -> None:
    texts = [f"text number {i}" for i in range(4000)]
    share = sum(is_validation(text, 0.05) for text in texts) / len(texts)
    assert share == pytest.approx(0.05, abs=0.012)  # 3.5 standard deviations
    assert all(is_validation(text, 0.3) for text in texts if is_validation(text, 0.05))
    assert not any(is_validation(text, 0.0) for text in texts)


class Killed(BaseException):
    """As good as SIGKILL: nothing catches it."""


@pytest.mark.parametrize("kill_at", [1, 3, 6, 9])
def test_killed_at_any_shard_and_rerun_gives_the_same_files(
    kill_at: int, stories: Path, tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    prepare(LocalText([stories]), whole, REQUEST, silent)
    assert len(read_manifest(whole).split("train")) >= 3

    writes = 0
    from looprepro.data import shards

    real = shards.write_bytes

    def dying(path: Path, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == kill_at:
            path.with_suffix(".tmp").write_bytes(data[: len(data) // 2])
            raise Killed
        real(path, data)

    broken = tmp_path / "broken"
    monkeypatch.setattr(shards, "write_bytes", dying)
    with pytest.raises(Killed):
        prepare(LocalText([stories]), broken, REQUEST, silent)
    assert not (broken / "manifest.json").exists()
    monkeypatch.setattr(shards, "write_bytes", real)

    read_again = []

    class Watched(LocalText):
        def documents(self, cursor: Any = None) -> Iterator[str]:
            read_again.append(cursor)
            return super().documents(cursor)

    prepare(Watched([stories]), broken, REQUEST, silent)
    for leftover in broken.glob("*.tmp"):
        leftover.unlink()
    assert files(broken) == files(whole)
    assert (read_again[-1] is not None) == (kill_at > 4)  # four files make up the first pair of shards


def test_a_finished_corpus_is_not_prepared_again(prepared: Callable[..., Path], stories: Path) -> None:
    folder = prepared()
    before = files(folder)
    reports: list[Progress] = []
    prepare(LocalText([stories]), folder, Request(300, 0.2), reports.append)
    assert reports == []
    assert files(folder) == before


def test_other_settings_do_not_mix_with_a_begun_folder(prepared: Callable[..., Path], stories: Path) -> None:
    folder = prepared()
    with pytest.raises(StoreError, match="begun with other settings"):
        prepare(LocalText([stories]), folder, Request(300, 0.3), silent)
    (stories / "b.txt").write_text("another text")
    with pytest.raises(StoreError, match="begun with other settings"):
        prepare(LocalText([stories]), folder, Request(300, 0.2), silent)


@pytest.mark.parametrize("ending", ["tokens", "lengths"])
def test_a_damaged_shard_is_refused_when_a_preparation_goes_on(
    ending: str, prepared: Callable[..., Path], stories: Path
) -> None:
    folder = prepared()
    (folder / "manifest.json").unlink()
    path = folder / f"train-00000.{ending}"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=f"train-00000.{ending} does not match its checksum"):
        prepare(LocalText([stories]), folder, Request(300, 0.2), silent)


def test_it_stops_at_the_document_that_reaches_the_tokens_asked_for(prepared: Callable[..., Path], small_blocks: None) -> None:
    everything = read_manifest(prepared())
    some = read_manifest(prepared("some", tokens=1000))
    lengths = np.concatenate([np.fromfile(prepared() / f"{s.name}.lengths", dtype="<u4") for s in everything.split("train")])
    needed = int(np.searchsorted(np.cumsum(lengths), 1000)) + 1
    assert some.tokens("train") == int(lengths[:needed].sum())
    assert 1000 <= some.tokens("train") < everything.tokens("train")


def test_progress_says_how_long_it_takes(stories: Path, tmp_path: Path, small_blocks: None) -> None:
    reports: list[Progress] = []
    prepare(LocalText([stories]), tmp_path / "out", Request(300, 0.2, tokens=1000), reports.append)
    assert list(dict.fromkeys(report.stage for report in reports)) == ["tokenizer", "tokens", "finished"]
    assert reports[-1].stage == "finished"
    assert reports[-1].tokens >= 1000
    assert reports[-1].remaining_seconds == 0.0
    assert Progress("tokens", 250, 1000, 10, 5.0, 100).remaining_seconds == pytest.approx(37.5)


def test_a_tokenizer_of_another_corpus_can_be_used(prepared: Callable[..., Path]) -> None:
    first = prepared()
    second = prepared("second", tokenizer=first / "tokenizer.json")
    assert (second / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    with pytest.raises(StoreError, match="has 300 entries, 310 are wanted"):
        prepared("third", tokenizer=first / "tokenizer.json", vocabulary=310)


def test_text_that_is_too_little_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("A single short text.")
    with pytest.raises(ConfigError, match="gives only"):
        prepare(LocalText([tmp_path / "one.txt"]), tmp_path / "out", Request(300, 0.2), silent)


def test_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        LocalText([tmp_path / "none"])
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": "fine"}) + "\n" + json.dumps({"body": "no"}) + "\n")
    with pytest.raises(ConfigError, match=r"bad.jsonl:2: no document"):
        list(LocalText([tmp_path / "bad.jsonl"]).documents())
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ConfigError, match=r"bad\.parquet"):
        list(LocalText([tmp_path / "bad.parquet"]).documents())


def test_parquet_is_read_from_its_text_column(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"id": ["a", "b", "c"], "text": ["first", "", "third"]})
    pyarrow.parquet.write_table(table, tmp_path / "some.parquet")
    source = LocalText([tmp_path])
    assert list(source.documents()) == ["first", "third"]
    assert list(source.documents([0, 1])) == ["third"]


def test_lone_surrogates_of_json_do_not_stop_a_preparation(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "half \\ud83d a pair"}\n')
    assert list(LocalText([tmp_path]).documents()) == ["half ? a pair"]
