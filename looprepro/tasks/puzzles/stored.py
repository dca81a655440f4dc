"""The common file format of HRM, TRM and FPRM: ``dataset.json`` and ``all__*.npy`` in a folder for each of train and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from looprepro import randomness
from looprepro.config.puzzles import MazeTask, SudokuTask
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import read_json
from looprepro.files.places import data_folder
from looprepro.tasks.puzzles.epochs import shuffled
from looprepro.tasks.puzzles.task import Graded

Ints = NDArray[np.int64]
STORED_IMAGE = 1
"""Step of the stream of augmentations from which stored images are chosen; images made here are chosen from step 0."""
_ARRAYS = ("inputs", "labels", "puzzle_identifiers", "puzzle_indices", "group_indices")


@dataclass(frozen=True, eq=False)
class StoredPuzzles:
    """One part of a data set. Arrays stay on disk and are read where they are asked for."""

    folder: Path
    about: Mapping[str, Any]
    """dataset.json: vocab_size, seq_len, total_puzzles, ..."""
    inputs: NDArray[Any]
    """``[examples, seq_len]``: tokens."""
    labels: NDArray[Any]
    """``[examples, seq_len]``."""
    puzzle_identifiers: NDArray[Any]
    """``[puzzles]``."""
    puzzle_indices: NDArray[Any]
    """``[puzzles + 1]``: the first example of each puzzle."""
    group_indices: NDArray[Any]
    """``[groups + 1]``: the first puzzle of each group."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def groups(self) -> int:
        """Puzzles that are no images of each other: a group is a puzzle with the images of it that are on disk."""
        return len(self.group_indices) - 1

    def one_of(self, groups: Ints, u: NDArray[np.float64]) -> Ints:
        """Int64 ``[groups]``: an example of each of ``groups``, chosen by a number ``u [groups]`` in [0, 1)."""
        first, after = (self.puzzle_indices[self.group_indices[ends]].astype(np.int64) for ends in (groups, groups + 1))
        chosen: Ints = first + (u * (after - first)).astype(np.int64)
        return chosen

    def take(self, examples: Ints) -> tuple[Ints, Ints]:
        """Inputs and labels of the given examples, int64 ``[examples, seq_len]``."""
        return self.inputs[examples].astype(np.int64), self.labels[examples].astype(np.int64)


class StoredOrMade(Graded):
    """Puzzles on a grid: those of a prepared data set, or generated ones where the configuration names none."""

    config: SudokuTask | MazeTask
    puzzle_identifiers = 1

    def __init__(self, config: SudokuTask | MazeTask, seed: int) -> None:
        """Raises :class:`ConfigError` where ``config.data`` has not been prepared."""
        self.config, self.seed, self._data_seed = config, seed, config.data_seed
        self._train = prepared(config.data, "train") if config.data else None
        self._test = prepared(config.data, "test") if config.data else None
        self.evaluation_limit = len(self._test) if self._test else None
        self.grid = config.grid

    def _trained(self, rows: Tensor) -> Tensor:
        """Int64 ``[rows]``: the training puzzle of each row, every one of ``train_items`` once per epoch. Of stored ones these
        are a sample drawn by ``data_seed``, as HRM's builder draws it, each in one of the images that are on disk with it;
        generated ones are the first so many."""
        if self._train is None:
            return shuffled(self.seed, rows.cpu(), self.config.train_items)
        chosen = shuffled(self.seed, rows.cpu(), min(self.config.train_items, self._train.groups))
        groups = shuffled(self._data_seed, chosen, self._train.groups)
        u = randomness.uniform(self.seed, randomness.AUGMENTATION, STORED_IMAGE, rows.cpu(), 1)[:, 0]
        return torch.from_numpy(self._train.one_of(groups.numpy(), u.numpy()))

    def _asked(self, rows: Tensor) -> Tensor:
        """Int64 ``[rows]``: the test puzzle of each evaluation row. Stored ones in an order drawn by ``data_seed``, so that the
        first so many stand for all (a file may be sorted) and fewer are among more; generated ones as they come."""
        return shuffled(self._data_seed, rows.cpu(), len(self._test)) if self._test else rows.cpu()


def prepared(name: str, part: str) -> StoredPuzzles:
    """One part of the prepared data set ``name``. :class:`ConfigError` where it has not been prepared."""
    folder = data_folder(name)
    if not folder.is_dir():
        raise ConfigError(
            f"the data set {name} has not been prepared ({folder} does not exist)", f"Run: looprepro data prepare {name}"
        )
    return read_part(folder / part)


def read_part(folder: Path) -> StoredPuzzles:
    """Open one part. :class:`StoreError` where a file is missing or the arrays do not fit together."""
    try:
        about = read_json(folder / "dataset.json")
        arrays = {name: np.load(folder / f"all__{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS}
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder} is not a puzzle data set: {error}", "Prepare it again: looprepro data prepare") from error
    if not isinstance(about, dict):
        raise StoreError(f"{folder}/dataset.json cannot be read", "Prepare it again: looprepro data prepare")
    part = StoredPuzzles(folder, about, **arrays)
    wanted = (len(part.labels), about.get("seq_len"))
    if part.inputs.shape != wanted or part.labels.shape != wanted:
        raise StoreError(
            f"{folder}: inputs {part.inputs.shape} and labels {part.labels.shape} are not {wanted}",
            "Prepare it again: looprepro data prepare",
        )
    ends = (part.puzzle_indices[-1], part.group_indices[-1])
    if ends != (len(part.inputs), len(part.puzzle_identifiers)):
        raise StoreError(f"{folder}: the indices end at {ends}", "Prepare it again: looprepro data prepare")
    return part
