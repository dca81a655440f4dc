"""Mazes: mark the shortest path from S to G. Generated mazes with one shortest path (a stand-in for Maze-Hard), or data.

Exact match needs every cell right, so a maze with two shortest paths would have a right answer that counts as wrong:
generated mazes have one. Difficulty is the number of steps of the path. Training and test mazes never share a maze under
turns and mirrors: each generated maze belongs to one side by the checksum of its canonical form.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.puzzles import MazeTask
from looprepro.files.errors import ConfigError
from looprepro.tasks.puzzles.maze_rules import (
    GOAL,
    PATH,
    START,
    canonical_form,
    distances,
    pose,
    random_walls,
    spanning_tree,
    the_path,
)
from looprepro.tasks.puzzles.square import Ints, turned
from looprepro.tasks.puzzles.stored import StoredOrMade, StoredPuzzles
from looprepro.tasks.puzzles.task import PuzzleBatch

TRAIN, TEST = 0, 1
TEST_SHARE = 4
"""Every so many-th canonical form belongs to the test side."""
_TRIES = 2000
"""Candidates per maze before the wish is called impossible."""


class Maze(StoredOrMade):
    """The maze task of one cell; satisfies :class:`looprepro.tasks.puzzles.task.PuzzleTask`."""

    config: MazeTask

    def examples(self, rows: Tensor, step: int) -> PuzzleBatch:
        """Training mazes number ``rows``: every maze once per epoch, turned and mirrored where the task says so."""
        inputs, labels = self._mazes(self._train, TRAIN, self._trained(rows))
        if self.config.dihedral:
            numbers = randomness.integers(self.seed, randomness.AUGMENTATION, 0, rows.cpu(), 1, 8)[:, 0].tolist()
            inputs = np.stack([turned(grid, number) for grid, number in zip(inputs, numbers, strict=True)])
            labels = np.stack([turned(grid, number) for grid, number in zip(labels, numbers, strict=True)])
        return self._batch(inputs, labels, rows)

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """Test mazes number ``rows``, as they are."""
        return self._batch(*self._mazes(self._test, TEST, self._asked(rows)), rows)

    def _mazes(self, stored: StoredPuzzles | None, part: int, items: Tensor) -> tuple[Ints, Ints]:
        """Puzzles and answers ``[items, side, side]``."""
        side = self.config.side
        if stored is not None:
            inputs, labels = stored.take(items.numpy())
            return inputs.reshape(-1, side, side), labels.reshape(-1, side, side)
        made = [_maze(self.config.model_copy(update={"train_items": 1, "dihedral": False}), part, i) for i in items.tolist()]
        return np.stack([puzzle for puzzle, _ in made]), np.stack([answer for _, answer in made])

    def _batch(self, inputs: Ints, labels: Ints, rows: Tensor) -> PuzzleBatch:
        steps = (labels == PATH).sum(axis=(1, 2)) + 1
        puzzles, answers = (torch.from_numpy(np.ascontiguousarray(grids).reshape(len(rows), -1)) for grids in (inputs, labels))
        blank = torch.zeros(len(rows), dtype=torch.int64)
        return PuzzleBatch(puzzles, answers, blank, torch.from_numpy(steps.astype(np.float64)), rows.cpu()).to(rows.device)


@lru_cache(maxsize=65536)
def _maze(config: MazeTask, part: int, item: int) -> tuple[Ints, Ints]:
    """Maze number ``item`` of a part and its answer; a pure function of the arguments."""
    side, (low, high) = config.side, config.path
    row = torch.tensor([2 * item + part])
    for attempt in range(_TRIES):
        keys = randomness.words(config.data_seed, randomness.PUZZLES, attempt, row, side * side + 2)[0].numpy()
        maze = spanning_tree(side, keys) if config.style == "perfect" else random_walls(side, config.walls, keys)
        free = np.flatnonzero(maze.ravel() != 1)
        if not len(free):
            continue
        start = int(free[keys[-2] * len(free) >> 32])
        steps, paths = distances(maze, start)
        goals = sorted(cell for cell, far in steps.items() if low <= far <= high and paths[cell] == 1)
        if not goals:
            continue
        # Far goals are as likely as near ones: first a distance that occurs, then a cell at it.
        lengths = sorted({steps[cell] for cell in goals})
        length = lengths[int(keys[-1]) * len(lengths) >> 32]
        at_length = [cell for cell in goals if steps[cell] == length]
        path = the_path(maze, steps, at_length[int(keys[-2]) % len(at_length)])
        puzzle, answer = pose(maze, path)
        if int(_checksum(puzzle) % TEST_SHARE == 0) == part:
            return puzzle, answer
    raise ConfigError(
        f"no maze of side {side} with a single shortest path of {low} to {high} steps was found in {_TRIES} tries",
        "Change task.path, task.walls or task.style",
    )


def _checksum(puzzle: Ints) -> int:
    assert (puzzle == START).sum() == (puzzle == GOAL).sum() == 1
    return int.from_bytes(hashlib.sha256(canonical_form(puzzle)).digest()[:8], "little")
