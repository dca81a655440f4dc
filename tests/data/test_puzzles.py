"""Puzzles from a hub on the loopback device, in the common file format; ARC from its package."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looprepro.data.catalog import Options, ensure, entry
from looprepro.data.puzzles import TRAINING_PUZZLES, _foreign, _sample, prepare_maze_hard, tokens_of, write_part
from looprepro.files.errors import StoreError
from looprepro.files.json_files import read_json

CHECKOUT = Path(__file__).parents[2]
SUDOKU, MAZE = "sapientinc/sudoku-extreme", "sapientinc/maze-30x30-hard-1k"


def sudoku(number: int) -> tuple[str, str]:
    """81 digits, and most of them blanked; not a real Sudoku, which nothing here needs."""
    draw = random.Random(number)
    answer = "".join(draw.choice("123456789") for _ in range(81))
    return "".join(digit if draw.random() < 0.3 else "." for digit in answer), answer


def maze(number: int) -> tuple[str, str]:
    draw = random.Random(number)
    question = " " + "".join(draw.choice("#  ") for _ in range(897)) + "SG"
    return question, question.replace("  ", " o", 1)


def csv(make: Callable[[int], tuple[str, str]], first: int, count: int) -> bytes:
    lines = ["source,question,answer,rating"]
    lines += [
        f"made,{question},{answer},{number % 7}"
        for number in range(first, first + count)
        for question, answer in [make(number)]
    ]
    return ("\n".join(lines) + "\n").encode()


def prepare(folder: Path, environment: dict[str, str], *names: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "LOOPREPRO"))}
    return subprocess.run(
        [sys.executable, "-m", "looprepro", "data", "prepare", *names],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(CHECKOUT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_both_data_sets_arrive_whole_from_the_hub(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    """The command unmodified; the test file of Sudoku breaks in the middle once. No digit of an answer is lost."""
    hub = loopback_hub(
        {
            SUDOKU: {"README.md": b"", "train.csv": csv(sudoku, 0, 60), "test.csv": csv(sudoku, 1000, 200)},
            MAZE: {"README.md": b"", "train.csv": csv(maze, 0, 12), "test.csv": csv(maze, 100, 5)},
        }
    )
    hub.break_once("test.csv", after=9000)
    done = prepare(tmp_path, hub.environment(tmp_path), "sudoku-extreme", "maze-hard")
    assert done.returncode == 0, done.stderr
    assert "60 training and 200 test puzzles of 81 cells" in done.stdout
    for name, make, alphabet, counts in (
        ("sudoku-extreme", sudoku, ".123456789", {"train": (0, 60), "test": (1000, 200)}),
        ("maze-hard", maze, "# SGo", {"train": (0, 12), "test": (100, 5)}),
    ):
        for part, (first, count) in counts.items():
            folder = tmp_path / "data" / name / part
            inputs, labels = (np.load(folder / f"all__{array}.npy") for array in ("inputs", "labels"))
            back = ["".join(alphabet[token - 1] for token in row) for row in inputs]
            answers = ["".join(alphabet[token - 1] for token in row) for row in labels]
            assert list(zip(back, answers, strict=True)) == [make(number) for number in range(first, first + count)]
            about = read_json(folder / "dataset.json")
            assert (about["vocab_size"], about["seq_len"], about["total_puzzles"]) == (
                len(alphabet) + 1,
                inputs.shape[1],
                count,
            )
            assert np.load(folder / "all__puzzle_indices.npy").tolist() == list(range(count + 1))
    manifest = read_json(tmp_path / "data" / "sudoku-extreme" / "manifest.json")
    assert manifest["source"] == {"name": SUDOKU, "revision": hub.commit(SUDOKU)}


def test_both_parts_are_read_from_one_commit(loopback_hub: Callable[..., Any], tmp_path: Path) -> None:
    """Somebody pushes another test file after the command has asked which commit is the newest."""
    hub = loopback_hub({MAZE: {"README.md": b"", "train.csv": csv(maze, 0, 4), "test.csv": csv(maze, 100, 3)}})
    began_with = hub.commit(MAZE)
    hub.push_once_asked(MAZE, {"test.csv": csv(maze, 200, 3)})
    done = prepare(tmp_path, hub.environment(tmp_path), "maze-hard")
    assert done.returncode == 0, done.stderr
    assert hub.commit(MAZE) != began_with
    read = {tuple(asked.split()[1].rsplit("/", 2)[1:]) for asked in hub.requests if "/resolve/" in asked and ".csv" in asked}
    assert read == {(began_with, "train.csv"), (began_with, "test.csv")}
    assert read_json(tmp_path / "data" / "maze-hard" / "manifest.json")["source"]["revision"] == began_with


@pytest.mark.parametrize("foreign", ["identifiers.json", "train/notes.txt", "test/deeper/all__inputs.npy"])
def test_files_of_others_are_refused_and_stay(tmp_path: Path, foreign: str) -> None:
    """Asked before the network is; a folder that HRM's scripts built has identifiers.json."""
    path = tmp_path / "data" / "maze-hard" / foreign
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(StoreError, match="is not ours"):
        prepare_maze_hard(tmp_path / "data" / "maze-hard", Options(), print)
    assert path.read_text() == "mine"


def test_what_a_stopped_preparation_left_is_not_foreign(tmp_path: Path) -> None:
    write_part(tmp_path / "train", [maze(1)], "# SGo", 900)
    (tmp_path / ".test.0a1b2c.tmp").mkdir()
    assert list(_foreign(tmp_path)) == list(_foreign(tmp_path / "nothing")) == []


def test_without_network_one_line_says_so(tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hf")}
    done = prepare(tmp_path, environment, "sudoku-extreme")
    assert done.returncode == 1
    assert "the hub does not answer" in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("Without network scales smoke and mini have stand-ins\n")
    assert not (tmp_path / "data" / "sudoku-extreme" / "manifest.json").exists()


def test_a_sweep_that_needs_the_data_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path / "data"))
    with pytest.raises(StoreError, match=r"looprepro data prepare sudoku-extreme; without network scales smoke and mini"):
        ensure("sudoku-extreme", lambda line: None)
    write_part(tmp_path / "own" / "test", [("1.3", "123")], ".123456789", 3)
    ensure(f"{tmp_path}/own", lambda line: None)


def test_training_puzzles_are_a_seeded_sample_in_their_order() -> None:
    pairs = [(str(number), str(number)) for number in range(5000)]
    first, second = _sample(iter(pairs), TRAINING_PUZZLES), _sample(iter(pairs), TRAINING_PUZZLES)
    numbers = [int(question) for question, _ in first]
    assert first == second
    assert len(set(numbers)) == TRAINING_PUZZLES
    assert numbers == sorted(numbers)
    assert abs(sum(numbers) / len(numbers) - 2499.5) < 4 * 1443 / 1000**0.5, "as uniform as a sample is"
    assert _sample(iter(pairs[:5]), TRAINING_PUZZLES) == pairs[:5]


def test_what_is_no_puzzle_is_refused(tmp_path: Path) -> None:
    assert tokens_of(".19", ".123456789", 3) == [1, 2, 10]
    with pytest.raises(StoreError, match="a puzzle has 2 cells, where 3 of"):
        tokens_of("19", ".123456789", 3)
    with pytest.raises(StoreError, match="a puzzle has the character 'x'"):
        write_part(tmp_path / "train", [("1x3", "123")], ".123456789", 3)
    assert not (tmp_path / "train").exists()


def test_arc_is_prepared_from_its_package(tmp_path: Path) -> None:
    found = entry("arc1").prepare(tmp_path / "arc1", Options(), lambda line: None)
    assert found == "arc1: training tasks 400 (1,302/416), evaluation tasks 400 (1,363/419) (demonstrations/test inputs)"
    assert read_json(tmp_path / "arc1" / "manifest.json")["summary"] == found
    second = entry("arc2").prepare(tmp_path / "arc2", Options(), lambda line: None)
    assert "evaluation tasks 120 (358/172)" in second
