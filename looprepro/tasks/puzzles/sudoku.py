"""Sudoku: fill the grid. Generated puzzles with unique solutions (a stand-in for Sudoku-Extreme), or a prepared data set.

Tokens: 0 pad, 1 empty, digit + 1. The answer covers all cells, given ones included; exact match is the metric
(Fixed-Point Reasoners, section 4.2; file format of HRM). Difficulty is the number of empty cells.

Training and test puzzles never share a puzzle under symmetry: each generated puzzle belongs to one side by a fingerprint
that no symmetry changes (:func:`looprepro.tasks.puzzles.sudoku_rules.fingerprint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.puzzles import SudokuTask
from looprepro.files.errors import ConfigError
from looprepro.tasks.puzzles.stored import StoredOrMade, StoredPuzzles
from looprepro.tasks.puzzles.sudoku_rules import Ints, Solver, fingerprint, key_count, places
from looprepro.tasks.puzzles.task import PuzzleBatch

TRAIN, TEST = 0, 1
TEST_SHARE = 4
"""Every so many-th fingerprint belongs to the test side."""
_TRIES = 1000
"""Candidates per puzzle before the wish is called impossible; one in two or three is taken in practice."""


class Sudoku(StoredOrMade):
    """The Sudoku task of one cell; satisfies :class:`looprepro.tasks.puzzles.task.PuzzleTask`."""

    config: SudokuTask

    def examples(self, rows: Tensor, step: int) -> PuzzleBatch:
        """Training puzzles number ``rows``: every puzzle once per epoch, in one of its symmetric images."""
        chosen = self._trained(rows)
        givens, solutions = self._stored(self._train, chosen) if self._train else self._generated(TRAIN, chosen)
        givens, solutions = self._augment(givens, solutions, chosen, rows.cpu())
        return self._batch(givens, solutions, rows)

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """Test puzzles number ``rows``, as they are."""
        items = self._asked(rows)
        givens, solutions = self._stored(self._test, items) if self._test else self._generated(TEST, items)
        return self._batch(givens, solutions, rows)

    def _generated(self, part: int, items: Tensor) -> tuple[Ints, Ints]:
        made = [_puzzle(self.config.side, self.config.empty, self.config.data_seed, part, item) for item in items.tolist()]
        return np.array([givens for givens, _ in made]), np.array([solution for _, solution in made])

    @staticmethod
    def _stored(stored: StoredPuzzles | None, items: Tensor) -> tuple[Ints, Ints]:
        assert stored is not None
        inputs, labels = stored.take(items.numpy())
        return np.maximum(inputs - 1, 0), labels - 1

    def _augment(self, givens: Ints, solutions: Ints, items: Tensor, rows: Tensor) -> tuple[Ints, Ints]:
        """Image number a of each puzzle, 0 <= a <= augmentations; image 0 is the puzzle itself."""
        if not self.config.augmentations:
            return givens, solutions
        side = self.config.side
        image = randomness.integers(self.seed, randomness.AUGMENTATION, 0, rows, 1, self.config.augmentations + 1)[:, 0]
        keys = randomness.words(self.config.data_seed, randomness.AUGMENTATION, image, items, key_count(side) + side).numpy()
        shown = places(side, keys[:, side:])
        digits = np.concatenate([np.zeros((len(keys), 1), np.int64), keys[:, :side].argsort(axis=1, kind="stable") + 1], axis=1)
        own = image.numpy() == 0
        shown[own], digits[own] = np.arange(side * side), np.arange(side + 1)
        return _image(givens, shown, digits), _image(solutions, shown, digits)

    def _batch(self, givens: Ints, solutions: Ints, rows: Tensor) -> PuzzleBatch:
        inputs, targets = torch.from_numpy(givens + 1), torch.from_numpy(solutions + 1)
        difficulty = torch.from_numpy((givens == 0).sum(axis=1).astype(np.float64))
        return PuzzleBatch(inputs, targets, torch.zeros(len(rows), dtype=torch.int64), difficulty, rows.cpu()).to(rows.device)


def _image(cells: Ints, shown: Ints, digits: Ints) -> Ints:
    """Every place shows another cell, its digit renamed."""
    return np.take_along_axis(digits, np.take_along_axis(cells, shown, axis=1), axis=1)


@lru_cache(maxsize=65536)
def _puzzle(side: int, empty: tuple[int, int], seed: int, part: int, item: int) -> tuple[Sequence[int], Sequence[int]]:
    """Puzzle number ``item`` of a part and its solution; a pure function of the arguments.

    Candidates are drawn one after another until one falls on this part's side of the split and has a number of empty
    cells in the wanted range; each candidate aims at its own number, drawn evenly from the range.
    """
    solver, cells = Solver(side), side * side
    low, high = empty
    row = torch.tensor([2 * item + part])
    for attempt in range(_TRIES):
        drawn = randomness.words(seed, randomness.PUZZLES, attempt, row, cells * side + cells + 1)[0].numpy()
        order = (drawn[: cells * side].reshape(cells, side).argsort(axis=1, kind="stable") + 1).tolist()
        solution = solver.solve([0] * cells, order)
        assert solution is not None, "an empty board has a solution"
        aim = low + int(drawn[-1]) * (high - low + 1) // (1 << 32)
        givens = _remove(solver, solution, drawn[cells * side : -1].argsort(kind="stable").tolist(), aim)
        found = fingerprint(side, np.array([givens]), np.array([solution]))[0]
        if givens.count(0) >= low and int(found % np.uint64(TEST_SHARE) == 0) == part:
            return tuple(givens), tuple(solution)
    raise ConfigError(
        f"no Sudoku of side {side} with {low} to {high} empty cells and one solution was found in {_TRIES} tries",
        "Lower task.empty",
    )


def _remove(solver: Solver, solution: list[int], order: list[int], aim: int) -> list[int]:
    """Empty cells in ``order`` while the solution stays unique, until ``aim`` are empty or nothing more can go."""
    givens = list(solution)
    for cell in order:
        if givens.count(0) == aim:
            break
        givens[cell] = 0
        # Unique before, so a second solution would differ in this cell.
        if solver.solve(givens, banned=(cell, solution[cell])) is not None:
            givens[cell] = solution[cell]
    return givens
