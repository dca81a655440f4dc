"""FineWeb-Edu from a hub on the loopback device: the command unmodified, a transfer broken in the middle, no network."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from looprepro.config.corpus import read_manifest
from looprepro.data.tokenizer import load_tokenizer

CHECKOUT = Path(__file__).parents[2]
README = b"""---
configs:
- config_name: default
  data_files: [{split: train, path: data/*/*}]
- config_name: sample-10BT
  data_files: [{split: train, path: sample/10BT/*}]
- config_name: sample-100BT
  data_files: [{split: train, path: sample/100BT/*}]
---
# FineWeb-Edu, a few kilobytes of it
"""
TEXT = "water light rock plant cell star river energy law number music history the of and in to is that for"
WORDS = TEXT.split()


def text(number: int) -> str:
    draw = np.random.default_rng(number)
    return f"Page {number}. " + " ".join(draw.choice(WORDS, size=int(draw.integers(30, 400)))) + "."


def parquet(first: int, count: int) -> bytes:
    """A file of FineWeb-Edu's schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = range(first, first + count)
    texts = [text(number) for number in numbers]
    schema = {
        "text": (texts, pa.string()),
        "id": ([f"<urn:uuid:{number:012d}>" for number in numbers], pa.string()),
        "dump": (["CC-MAIN-2024-10"] * count, pa.string()),
        "url": ([f"https://example.org/{number}" for number in numbers], pa.string()),
        "file_path": ([f"s3://commoncrawl/{number}.warc.gz" for number in numbers], pa.string()),
        "language": (["en"] * count, pa.string()),
        "language_score": ([0.9 + number % 10 / 100 for number in numbers], pa.float64()),
        "token_count": ([len(one) // 4 for one in texts], pa.int64()),
        "score": ([2.5 + number % 20 / 10 for number in numbers], pa.float64()),
        "int_score": ([3 + number % 3 for number in numbers], pa.int64()),
    }
    table = pa.table({name: pa.array(values, kind) for name, (values, kind) in schema.items()})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=40)
    return sink.getvalue()


FILES = {
    "README.md": README,
    "data/CC-MAIN-2024-10/train-00000-of-00001.parquet": parquet(1000, 1),
    "sample/10BT/000_00000.parquet": parquet(0, 120),
    "sample/10BT/001_00000.parquet": parquet(120, 100),
    "sample/100BT/000_00000.parquet": parquet(2000, 1),
}
REPOSITORY = "HuggingFaceFW/fineweb-edu"


def prepare(
    folder: Path,
    environment: dict[str, str],
    *arguments: str,
    program: Sequence[str] = ("-m", "looprepro"),
    name: str = "fineweb-edu",
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "LOOPREPRO"))}
    return subprocess.run(
        [sys.executable, *program, "data", "prepare", name, *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(CHECKOUT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def decoded(folder: Path, split: str) -> list[str]:
    manifest = read_manifest(folder)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    found = []
    for shard in manifest.split(split):
        tokens = np.fromfile(folder / f"{shard.name}.tokens", dtype="<u2")
        lengths = np.fromfile(folder / f"{shard.name}.lengths", dtype="<u4")
        found += [tokenizer.decode(ids[:-1].tolist()) for ids in np.split(tokens, np.cumsum(lengths)[:-1]) if len(ids)]
    return found


def test_a_broken_transfer_goes_on_and_every_page_is_there_once(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    hub = loopback_hub({REPOSITORY: FILES})
    hub.break_once("sample/10BT/001_00000.parquet", after=2000)
    done = prepare(tmp_path, hub.environment(tmp_path), "--tokens", "1M", "--vocabulary", "400", "--validation", "0.1")
    assert done.returncode == 0, done.stderr
    assert hub.broken == ["sample/10BT/001_00000.parquet"]
    folder = tmp_path / "data" / "fineweb-edu"
    manifest = read_manifest(folder)
    assert manifest.source == {
        "name": REPOSITORY,
        "subset": "sample-10BT",
        "split": "train",
        "column": "text",
        "revision": hub.commit(REPOSITORY),
    }
    train, validation = decoded(folder, "train"), decoded(folder, "validation")
    assert sorted(train + validation) == sorted(text(number) for number in range(220))
    assert len(validation) > 5
    assert "tokens" in done.stdout


SMALL_SHARDS = """
import os, sys
from dataclasses import replace
from looprepro.data import prepare, shards, text
prepare.BLOCK = 16
made = text.Request
text.Request = lambda *arguments: replace(made(*arguments), shard_tokens=5000)
left = int(sys.argv.pop(1))
write = shards.write_bytes
def dying(path, data):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    write(path, data)
shards.write_bytes = dying
from looprepro.cli.main import run
run()
"""


def test_killed_it_goes_on_where_the_last_shard_ended(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    """The stream is entered again in the middle of the second file, at the commit that it was begun with."""
    hub = loopback_hub({REPOSITORY: FILES})
    settings = ("--tokens", "1M", "--vocabulary", "400", "--validation", "0.1")

    def run(die_at_write: int) -> subprocess.CompletedProcess[str]:
        return prepare(tmp_path, hub.environment(tmp_path), *settings, program=["-c", SMALL_SHARDS, str(die_at_write)])

    assert run(die_at_write=25).returncode == 9
    began_with = hub.commit(REPOSITORY)
    hub.repositories[REPOSITORY]["new.txt"] = b"pushed meanwhile"
    hub.commits[REPOSITORY] = [began_with]
    asked = len(hub.requests)
    done = run(die_at_write=0)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "data" / "fineweb-edu"
    assert read_manifest(folder).source["revision"] == began_with
    assert sorted(decoded(folder, "train") + decoded(folder, "validation")) == sorted(text(number) for number in range(220))
    assert len(read_manifest(folder).split("train")) > 6
    of_the_first = [request for request in hub.requests[asked:] if "sample/10BT/000_00000.parquet" in request]
    assert len(of_the_first) <= 1, "its footer says what the columns are; its text is not read again"


def test_lambada_becomes_the_file_that_both_scorers_read(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    passages = [f"passage {number} with a last word" for number in range(3)]
    lines = "".join(json.dumps({"text": passage}) + "\n" for passage in passages)
    readme = b"---\nconfigs:\n- config_name: default\n  data_files: [{split: test, path: data/lambada_test_en.jsonl}]\n---\n"
    files = {"README.md": readme, "data/lambada_test_en.jsonl": lines.encode()}
    hub = loopback_hub({"EleutherAI/lambada_openai": files})
    done = prepare(tmp_path, hub.environment(tmp_path), name="lambada")
    assert done.returncode == 0, done.stderr
    assert "3 passages, 5153 were expected" in done.stderr
    assert (tmp_path / "data" / "lambada" / "test.jsonl").read_text() == lines
    listed = json.loads((tmp_path / "data" / "lambada" / "manifest.json").read_text())
    assert listed["source"]["revision"] == hub.commit("EleutherAI/lambada_openai")


def test_without_network_one_line_names_the_offline_way(tmp_path: Path) -> None:
    refusing = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "home")}
    done = prepare(tmp_path, refusing, "--tokens", "1M")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the hub does not answer")
    assert "looprepro data prepare --text FILES" in line
    assert "offline-smoke" in line


def test_an_unknown_revision_is_named(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    hub = loopback_hub({REPOSITORY: FILES})
    done = prepare(tmp_path, hub.environment(tmp_path), "--revision", "no-such")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "at no-such" in done.stderr
