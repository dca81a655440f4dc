"""The eight symmetries of the square, on grids as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def turned(grid: NDArray[Any], number: int) -> NDArray[Any]:
    """Symmetry ``number`` 0..7 of a grid ``[..., height, width]``: 0-3 quarter turns, 4-7 the same after a mirror image."""
    mirrored = grid[..., ::-1] if number >= 4 else grid
    return np.rot90(mirrored, number % 4, axes=(-2, -1))


def turned_back(grid: NDArray[Any], number: int) -> NDArray[Any]:
    """The inverse of :func:`turned`."""
    back = np.rot90(grid, -(number % 4), axes=(-2, -1))
    return back[..., ::-1] if number >= 4 else back
