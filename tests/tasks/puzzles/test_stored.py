"""The common file format of HRM, TRM and FPRM: read where it is whole, refused where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from looprepro.config.puzzles import MazeTask, SudokuTask
from looprepro.files.errors import StoreError
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.stored import prepared


def write(folder: Path, inputs: np.ndarray, labels: np.ndarray, vocabulary: int) -> None:
    """One part as HRM's builder writes it: every example a puzzle and a group."""
    folder.mkdir(parents=True)
    count = len(inputs)
    arrays = {"inputs": inputs, "labels": labels, "puzzle_identifiers": np.zeros(count, np.int32)}
    arrays |= {name: np.arange(count + 1, dtype=np.int32) for name in ("puzzle_indices", "group_indices")}
    for name, array in arrays.items():
        np.save(folder / f"all__{name}.npy", array)
    about = {"pad_id": 0, "ignore_label_id": 0, "vocab_size": vocabulary, "seq_len": inputs.shape[1], "sets": ["all"]}
    (folder / "dataset.json").write_text(json.dumps(about))


def both(part: Path) -> list[tuple[list[int], list[int]]]:
    """Inputs and labels of a stored part, in the order of the file."""
    inputs, labels = (np.load(part / f"all__{name}.npy").tolist() for name in ("inputs", "labels"))
    return list(zip(inputs, labels, strict=True))


def store_numbered(folder: Path, kind: str) -> None:
    """2000 rows that say their own number, as both parts."""
    numbered = np.ones((2000, 81 if kind == "sudoku" else 900), np.int32)
    numbered[:, :2] = np.stack([np.arange(2000) // 50 + 2, np.arange(2000) % 50 + 2], axis=1)
    for part in ("train", "test"):
        write(folder / part, numbered, numbered, 11)


def numbers(inputs: torch.Tensor) -> list[int]:
    """Which rows of :func:`store_numbered` these are."""
    return [(first - 2) * 50 + second - 2 for first, second in inputs[:, :2].tolist()]


@pytest.fixture
def sudoku(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three training and two test puzzles made here, stored as tokens of the format: empty 1, digit + 1."""
    made = make_puzzle_task(SudokuTask(side=9, empty=(30, 40)), 0).evaluation_examples(torch.arange(5))
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    for part, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
        write(tmp_path / "sudoku-extreme" / part, made.inputs[rows].numpy().astype(np.uint8), made.targets[rows].numpy(), 11)
    return tmp_path / "sudoku-extreme"


def test_stored_puzzles_are_trained_in_their_images_and_tested_as_they_are(sudoku: Path) -> None:
    task = make_puzzle_task(SudokuTask(data="sudoku-extreme", augmentations=0), seed=0)
    test = task.evaluation_examples(torch.arange(2))
    assert task.evaluation_limit == 2
    stored = {tuple(given): answer for given, answer in both(sudoku / "test")}
    assert {tuple(given) for given in test.inputs.tolist()} == set(stored)
    for given, answer, empty in zip(test.inputs.tolist(), test.targets.tolist(), test.difficulty.tolist(), strict=True):
        assert answer == stored[tuple(given)]
        assert empty == given.count(1)
    train = task.examples(torch.arange(3), 0)
    assert sorted(train.inputs.tolist()) == sorted(np.load(sudoku / "train" / "all__inputs.npy").tolist())
    images = make_puzzle_task(SudokuTask(data="sudoku-extreme", augmentations=500), seed=0).examples(torch.arange(60), 0)
    assert len({tuple(row) for row in images.inputs.tolist()}) > 50
    for puzzle, answer in zip(images.inputs, images.targets, strict=True):
        assert sorted(answer[:9].tolist()) == list(range(2, 11))
        assert ((puzzle == 1) | (puzzle == answer)).all()


@pytest.mark.parametrize("kind", ["sudoku", "maze"])
def test_some_stored_test_puzzles_are_a_drawn_subset_that_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Rows that say their own number: the first 100 of 1000 are the same, they are not the first of the file, all are all."""
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    store_numbered(tmp_path / "numbered", kind)

    def asked(items: int, data_seed: int = 0, seed: int = 0) -> list[int]:
        config = (SudokuTask if kind == "sudoku" else MazeTask)(data="numbered", data_seed=data_seed)
        return numbers(make_puzzle_task(config, seed).evaluation_examples(torch.arange(items)).inputs)

    assert asked(1000)[:100] == asked(100) == asked(100, seed=1)
    assert asked(2000)[:1000] == asked(1000)
    assert sorted(asked(2000)) == list(range(2000))
    assert set(asked(100)) != set(range(100))
    assert set(asked(100)) != set(asked(100, data_seed=1))
    assert 900 < np.mean(asked(400)) < 1100, "of 400 even draws without return the mean has a standard error of 26"


def test_a_folder_can_be_named_by_its_path(sudoku: Path) -> None:
    task = make_puzzle_task(SudokuTask(data=f"{sudoku}/", train_items=2, augmentations=0), seed=0)
    seen = {tuple(row) for row in task.examples(torch.arange(10), 0).inputs.tolist()}
    assert len(seen) == 2


@pytest.mark.parametrize("kind", ["sudoku", "maze"])
def test_stored_training_puzzles_are_a_drawn_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """As HRM's builder: 100 of 2000, not the head of the file, the same for every seed, each once per epoch."""
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    store_numbered(tmp_path / "numbered", kind)

    def trained(rows: range, data_seed: int = 0, seed: int = 0) -> list[int]:
        kept = {"augmentations": 0} if kind == "sudoku" else {"dihedral": False}
        config = (SudokuTask if kind == "sudoku" else MazeTask)(data="numbered", train_items=100, data_seed=data_seed, **kept)
        return numbers(make_puzzle_task(config, seed).examples(torch.tensor(rows), 0).inputs)

    first, second = trained(range(100)), trained(range(100, 200))
    assert len(set(first)) == 100
    assert set(first) == set(second) == set(trained(range(100), seed=1))
    assert first != second
    assert set(first) != set(range(100))
    assert set(first) != set(trained(range(100), data_seed=1))


@pytest.mark.parametrize("images", [1, 3])
def test_an_epoch_of_a_data_set_with_images_on_disk_visits_each_puzzle_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: int
) -> None:
    """As HRM's builder stores them: a group is a puzzle, each of its images a puzzle of the group, of one example."""
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    store_numbered(tmp_path / "numbered", "sudoku")
    ends = np.append(np.arange(0, 2000, images), 2000).astype(np.int32)
    np.save(tmp_path / "numbered" / "train" / "all__group_indices.npy", ends)
    task = make_puzzle_task(SudokuTask(data="numbered", train_items=50, augmentations=0), seed=0)
    epochs = [numbers(task.examples(torch.arange(50 * epoch, 50 * epoch + 50), 0).inputs) for epoch in range(8)]
    puzzles = [{number // images for number in epoch} for epoch in epochs]
    assert all(len(epoch) == 50 for epoch in puzzles)
    assert all(epoch == puzzles[0] for epoch in puzzles)
    assert (len({number for epoch in epochs for number in epoch}) > 100) == (images > 1)


def test_mazes_are_read_in_the_same_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_puzzle_task(MazeTask(side=30, style="walls", path=(4, 90)), 0).evaluation_examples(torch.arange(2))
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    for part in ("train", "test"):
        write(tmp_path / "maze-hard" / part, made.inputs.numpy(), made.targets.numpy(), 6)
    found = make_puzzle_task(MazeTask(data="maze-hard"), seed=0).evaluation_examples(torch.arange(2))
    order = [0, 1] if torch.equal(found.inputs[0], made.inputs[0]) else [1, 0]
    assert torch.equal(found.inputs, made.inputs[order])
    assert torch.equal(found.targets, made.targets[order])
    assert torch.equal(found.difficulty, made.difficulty[order])


def test_a_damaged_folder_is_refused(sudoku: Path) -> None:
    np.save(sudoku / "test" / "all__labels.npy", np.zeros((2, 80), np.int32))
    with pytest.raises(StoreError, match=r"labels \(2, 80\) are not \(2, 81\)"):
        prepared("sudoku-extreme", "test")
    (sudoku / "train" / "all__inputs.npy").unlink()
    with pytest.raises(StoreError, match="is not a puzzle data set"):
        prepared("sudoku-extreme", "train")
    (sudoku / "train" / "dataset.json").write_text("[]")
    with pytest.raises(StoreError, match="Prepare it again"):
        prepared("sudoku-extreme", "train")
