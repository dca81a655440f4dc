"""Sudoku of side 4, 6 and 9: who sees whom, a solver, the symmetries, and a fingerprint that symmetries cannot change.

Cells are numbered row by row, digits from 1, 0 is empty. Side 6 has boxes of 2 rows x 3 columns, so it cannot be transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Cells = list[int]
Ints = NDArray[np.int64]

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Side -> rows and columns of a box."""


@dataclass(frozen=True)
class Geometry:
    """Rows, columns and boxes of one side."""

    side: int
    unit_of: tuple[tuple[int, int, int], ...]
    """Cell -> its row, its column, its box; each numbered 0..side-1."""

    @property
    def box(self) -> tuple[int, int]:
        """Rows and columns of a box."""
        return BOXES[self.side]

    @property
    def transposable(self) -> bool:
        """Whether rows and columns may be swapped."""
        return self.box[0] == self.box[1]


@lru_cache(maxsize=3)
def geometry(side: int) -> Geometry:
    """The geometry of side 4, 6 or 9."""
    height, width = BOXES[side]
    units = [(row, column, row // height * height + column // width) for row in range(side) for column in range(side)]
    return Geometry(side, tuple(units))


class Solver:
    """Backtracking over the cell with the fewest candidates, on bit masks. One solver serves many puzzles of its side."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.units = geometry(side).unit_of
        self.all = (1 << side) - 1

    def solve(self, cells: Cells, order: list[Cells] | None = None, banned: tuple[int, int] | None = None) -> Cells | None:
        """A solution that extends ``cells``, or None.

        ``order[cell]`` lists the digits in the order in which they are tried there (default ascending); ``banned`` is a
        (cell, digit) that the solution must not have. None also where ``cells`` contradict themselves.
        """
        rows, columns, boxes = [self.all] * self.side, [self.all] * self.side, [self.all] * self.side
        board = list(cells)
        free = []
        for cell, digit in enumerate(board):
            if not digit:
                free.append(cell)
                continue
            row, column, box = self.units[cell]
            bit = 1 << (digit - 1)
            if not rows[row] & columns[column] & boxes[box] & bit:
                return None
            rows[row] ^= bit
            columns[column] ^= bit
            boxes[box] ^= bit
        return board if self._fill(board, free, rows, columns, boxes, order, banned) else None

    def _fill(
        self,
        board: Cells,
        free: Cells,
        rows: Cells,
        columns: Cells,
        boxes: Cells,
        order: list[Cells] | None,
        banned: tuple[int, int] | None,
    ) -> bool:
        if not free:
            return True
        fewest, at, masks = self.side + 1, -1, 0
        for position, cell in enumerate(free):
            row, column, box = self.units[cell]
            mask = rows[row] & columns[column] & boxes[box]
            if banned is not None and banned[0] == cell:
                mask &= ~(1 << (banned[1] - 1))
            count = mask.bit_count()
            if count < fewest:
                fewest, at, masks = count, position, mask
                if count <= 1:
                    break
        if not masks:
            return False
        cell = free.pop(at)
        row, column, box = self.units[cell]
        for digit in order[cell] if order else range(1, self.side + 1):
            bit = 1 << (digit - 1)
            if not masks & bit:
                continue
            board[cell] = digit
            rows[row] ^= bit
            columns[column] ^= bit
            boxes[box] ^= bit
            if self._fill(board, free, rows, columns, boxes, order, banned):
                return True
            rows[row] ^= bit
            columns[column] ^= bit
            boxes[box] ^= bit
        board[cell] = 0
        free.insert(at, cell)
        return False


# Symmetries ---------------------------------------------------------------------------------------------------------


def places(side: int, keys: Ints) -> Ints:
    """Int64 ``[rows, cells]``: for every row of random ``keys`` a symmetry of the board, as the cell that each place shows.

    ``keys`` int64 ``[rows, key_count(side)]``: bands and the rows in each, stacks and the columns in each are ordered by
    their keys; the lowest bit of the last key transposes boards with square boxes.
    """
    height, width = BOXES[side]
    bands, stacks = side // height, side // width
    row_keys, column_keys = keys[:, : bands + side], keys[:, bands + side : bands + stacks + 2 * side]
    rows = _lines(row_keys, bands, height)
    columns = _lines(column_keys, stacks, width)
    shown = rows[:, :, None] * side + columns[:, None, :]
    if geometry(side).transposable:
        turned = (keys[:, -1] & 1).astype(bool)
        shown[turned] = shown[turned].transpose(0, 2, 1)
    return shown.reshape(len(keys), side * side)


def key_count(side: int) -> int:
    """Random words that :func:`places` takes per symmetry."""
    height, width = BOXES[side]
    return side // height + side // width + 2 * side + 1


def _lines(keys: Ints, groups: int, size: int) -> Ints:
    """Which line each place shows: groups in the order of their keys, lines within a group in the order of theirs."""
    order = keys[:, :groups].argsort(axis=1, kind="stable")
    inner = keys[:, groups:].reshape(len(keys), groups, size).argsort(axis=2, kind="stable")
    lines = np.take_along_axis(inner, order[:, :, None], axis=1) + order[:, :, None] * size
    return lines.reshape(len(keys), groups * size)


# Fingerprint --------------------------------------------------------------------------------------------------------


def fingerprint(side: int, givens: Ints, solutions: Ints) -> NDArray[np.uint64]:
    """Uint64 ``[puzzles]``: equal for puzzles that a symmetry turns into each other, whatever the symmetry.

    Colour refinement on the cells: a cell starts as given or empty and takes up, for three rounds, the multisets of the
    colours in its row, column and box and of the cells with its digit. No digit, no order and (for square boxes) no
    difference between rows and columns enters, so no symmetry changes the multiset of all colours. Puzzles that are not
    images of each other may share a value; a split by it is sound either way.
    """
    count = len(givens)
    units = np.asarray(geometry(side).unit_of)
    colours = _mix(np.where(givens > 0, np.uint64(1), np.uint64(2)))
    rows = np.arange(count)[:, None]
    for _ in range(3):
        mixed = _mix(colours)
        sums = [_gather(mixed, np.broadcast_to(units[:, k], givens.shape), rows, side) for k in range(3)]
        digit = _gather(mixed, solutions - 1, rows, side)
        lines = (
            _mix(sums[0]) + _mix(sums[1])
            if geometry(side).transposable
            else _mix(sums[0] ^ np.uint64(0x9E3779B97F4A7C15)) + _mix(sums[1])
        )
        colours = _mix(colours + _mix(lines) * np.uint64(3) + _mix(sums[2]) * np.uint64(5) + _mix(digit) * np.uint64(7))
    return _mix(_mix(colours).sum(axis=1, dtype=np.uint64))


def _gather(values: NDArray[np.uint64], units: Ints, rows: Ints, side: int) -> NDArray[np.uint64]:
    """Per cell, the sum of ``values`` over its unit: an order-free summary of a multiset of mixed values."""
    sums = np.zeros((len(values), side), dtype=np.uint64)
    np.add.at(sums, (np.broadcast_to(rows, values.shape), units), values)
    return np.take_along_axis(sums, units, axis=1)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): spreads every bit over all."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
