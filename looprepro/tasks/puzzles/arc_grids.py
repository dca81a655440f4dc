"""ARC grids: colours 0..9, their images under turns, mirrors and colour changes, and their flattening to a square of tokens.

Tokens: 0 pad, 1 end, colour + 2. The row below and the column right of a grid are marked with ends (HRM's layout), so a
grid's size can be read off an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from looprepro.tasks.puzzles.square import Ints, turned, turned_back

END, FIRST_COLOUR = 1, 2
COLOURS = 10


@dataclass(frozen=True)
class Image:
    """One symmetric image of a task."""

    number: int
    """Turn or mirror, 0..7 (:func:`looprepro.tasks.puzzles.square.turned`)."""
    colours: tuple[int, ...]
    """What each colour becomes; the background 0 stays."""

    def of(self, grid: Ints) -> Ints:
        """The image of a grid ``[height, width]``."""
        return turned(np.asarray(self.colours)[grid], self.number)

    def undo(self, grid: Ints) -> Ints:
        """The grid whose image ``grid`` is."""
        return np.argsort(self.colours)[turned_back(grid, self.number)]


ITSELF = Image(0, tuple(range(COLOURS)))


def flatten(grid: Ints, side: int, down: int = 0, right: int = 0) -> Ints:
    """Tokens int64 ``[side^2]`` of a grid whose top left corner stands at (down, right)."""
    height, width = grid.shape
    square = np.zeros((side, side), dtype=np.int64)
    square[down : down + height, right : right + width] = grid + FIRST_COLOUR
    if down + height < side:
        square[down + height, right : right + width] = END
    if right + width < side:
        square[down : down + height, right + width] = END
    return square.ravel()


def unflatten(tokens: Ints, side: int) -> Ints:
    """The grid of an answer ``[side^2]``: the largest rectangle from the top left corner that holds colours alone.

    May be empty (``[0, 0]``). Of rectangles of one area, the one with fewer rows.
    """
    square = tokens.reshape(side, side)
    coloured = (square >= FIRST_COLOUR).cumprod(axis=1).sum(axis=1)  # colours at the start of each row
    widths = np.minimum.accumulate(coloured)
    areas = widths * np.arange(1, side + 1)
    if not areas.max():
        return np.zeros((0, 0), dtype=np.int64)
    rows = int(areas.argmax()) + 1
    return square[:rows, : widths[rows - 1]] - FIRST_COLOUR
