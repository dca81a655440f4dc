"""Mazes: making them, shortest paths and how many there are, a canonical form.

Tokens: 0 pad, 1 wall, 2 corridor, 3 start, 4 goal, 5 path (Maze-Hard's alphabet ``# SGo``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from looprepro.tasks.puzzles.square import Ints, turned

WALL, OPEN, START, GOAL, PATH = 1, 2, 3, 4, 5


def random_walls(side: int, share: float, keys: Ints) -> Ints:
    """Int64 ``[side, side]``: each cell a wall with probability ``share``; ``keys`` are 32-bit words, one per cell."""
    return np.where(keys[: side * side] < share * 2**32, WALL, OPEN).reshape(side, side)


def spanning_tree(side: int, keys: Ints) -> Ints:
    """Int64 ``[side, side]``: corridors on odd rows and columns, joined by a depth-first tree: every path is unique.

    ``keys``: 32-bit words; the order in which the four directions are tried at a cell comes from the cell's word.
    """
    maze = np.full((side, side), WALL, dtype=np.int64)
    first = (1, 1)
    maze[first] = OPEN
    path = [first]
    while path:
        row, column = path[-1]
        turn = int(keys[row * side + column])
        for direction in _PERMUTATIONS[turn % 24]:
            down, right = _STEPS[direction]
            beyond = row + 2 * down, column + 2 * right
            if 0 < beyond[0] < side and 0 < beyond[1] < side and maze[beyond] == WALL:
                maze[row + down, column + right] = maze[beyond] = OPEN
                path.append(beyond)
                break
        else:
            path.pop()
    return maze


_STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))
_PERMUTATIONS = tuple(
    (a, b, c, d) for a in range(4) for b in range(4) for c in range(4) for d in range(4) if len({a, b, c, d}) == 4
)


def distances(maze: Ints, start: int) -> tuple[dict[int, int], dict[int, int]]:
    """Steps from ``start`` (row * side + column) to every cell it reaches, and the number of shortest paths there."""
    steps, paths, frontier = {start: 0}, {start: 1}, [start]
    cells = maze.ravel()
    while frontier:
        found: dict[int, int] = {}
        for cell in frontier:
            for other in _neighbours(cell, maze.shape[1], cells):
                if other not in steps:
                    found[other] = found.get(other, 0) + paths[cell]
        level = steps[frontier[0]] + 1
        for cell, count in found.items():
            steps[cell], paths[cell] = level, count
        frontier = list(found)
    return steps, paths


def _neighbours(cell: int, side: int, cells: NDArray[Any]) -> Iterator[int]:
    column = cell % side
    if cell >= side and cells[cell - side] != WALL:
        yield cell - side
    if cell + side < len(cells) and cells[cell + side] != WALL:
        yield cell + side
    if column and cells[cell - 1] != WALL:
        yield cell - 1
    if column + 1 < side and cells[cell + 1] != WALL:
        yield cell + 1


def the_path(maze: Ints, steps: dict[int, int], goal: int) -> list[int]:
    """The cells from start to ``goal`` of a shortest path that is the only one, both ends included."""
    path, cells = [goal], maze.ravel()
    while steps[path[-1]]:
        here = path[-1]
        path.append(next(cell for cell in _neighbours(here, maze.shape[1], cells) if steps.get(cell) == steps[here] - 1))
    return path[::-1]


def pose(maze: Ints, path: Sequence[int]) -> tuple[Ints, Ints]:
    """The puzzle (start and goal marked) and its answer (the path marked between them), each ``[side, side]``."""
    puzzle = maze.copy()
    puzzle.flat[path[0]], puzzle.flat[path[-1]] = START, GOAL
    answer = puzzle.copy()
    answer.flat[list(path[1:-1])] = PATH
    return puzzle, answer


def canonical_form(puzzle: Ints) -> bytes:
    """Equal for mazes that a turn or a mirror makes equal, and for them alone."""
    return min(np.ascontiguousarray(turned(puzzle, number)).tobytes() for number in range(8))
