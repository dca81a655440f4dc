"""Mazes: one shortest path, checked by counting paths another way; the split; the symmetries of the square."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from looprepro.config.puzzles import MazeTask
from looprepro.files.errors import ConfigError
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.maze_rules import GOAL, PATH, START, WALL, canonical_form
from looprepro.tasks.puzzles.square import turned, turned_back

WALLS = MazeTask(side=9, path=(4, 20), train_items=60)
TREE = MazeTask(side=11, style="perfect", path=(10, 60), train_items=60)


def shortest_paths(maze: np.ndarray) -> tuple[int, int]:
    """(Length, number) of the shortest paths from S to G by powers of the adjacency matrix: walks of that length."""
    side = len(maze)
    free = [(r, c) for r in range(side) for c in range(side) if maze[r, c] != WALL]
    adjacency = np.array([[int(abs(a - c) + abs(b - d) == 1) for c, d in free] for a, b in free], dtype=object)
    at = np.array([int(maze[cell] == START) for cell in free], dtype=object)
    goal = next(i for i, cell in enumerate(free) if maze[cell] == GOAL)
    for length in range(1, len(free)):
        at = adjacency @ at
        if at[goal]:
            return length, at[goal]
    raise AssertionError("no path")


@pytest.mark.parametrize("config", [WALLS, TREE], ids=["walls", "perfect"])
def test_there_is_one_shortest_path_and_it_is_the_target(config: MazeTask) -> None:
    task = make_puzzle_task(config, seed=0)
    for batch in (task.examples(torch.arange(12), 0), task.evaluation_examples(torch.arange(12))):
        mazes = batch.inputs.reshape(-1, config.side, config.side).numpy()
        answers = batch.targets.reshape(-1, config.side, config.side).numpy()
        for maze, answer, steps in zip(mazes, answers, batch.difficulty.tolist(), strict=True):
            assert shortest_paths(maze) == (steps, 1)
            assert config.path[0] <= steps <= config.path[1]
            marked = answer == PATH
            assert marked.sum() == steps - 1
            assert (np.where(marked, 2, answer) == maze).all(), "nothing but corridor becomes path"
            seen = [tuple(cell) for cell in np.argwhere((answer == PATH) | (answer == START) | (answer == GOAL))]
            links = sum(abs(a - c) + abs(b - d) == 1 for (a, b) in seen for (c, d) in seen) // 2
            assert links == steps, "the marked cells are one chain from S to G"


@pytest.mark.parametrize("dihedral", [False, True])
def test_no_test_maze_is_a_turned_or_mirrored_training_maze(dihedral: bool) -> None:
    config = MazeTask(side=5, path=(2, 9), train_items=300, dihedral=dihedral)
    task = make_puzzle_task(config, seed=0)
    train = task.examples(torch.arange(600), 0).inputs.reshape(-1, 5, 5).numpy()
    test = task.evaluation_examples(torch.arange(150)).inputs.reshape(-1, 5, 5).numpy()
    images = {turned(maze, number).tobytes() for maze in train for number in range(8)}
    assert not images & {np.ascontiguousarray(maze).tobytes() for maze in test}
    assert len({maze.tobytes() for maze in train}) > (300 if dihedral else 150)


def test_turning_has_an_inverse_and_eight_different_images() -> None:
    grid = np.arange(12).reshape(3, 4)
    assert len({(turned(grid, k).shape, turned(grid, k).tobytes()) for k in range(8)}) == 8
    assert all((turned_back(turned(grid, k), k) == grid).all() for k in range(8))
    assert turned(grid, 1)[0].tolist() == [3, 7, 11]
    assert turned(grid, 4)[0].tolist() == [3, 2, 1, 0]
    assert len({canonical_form(turned(grid[:, :3], k)) for k in range(8)}) == 1


def test_augmented_mazes_come_in_pairs_of_puzzle_and_answer() -> None:
    task = make_puzzle_task(WALLS.model_copy(update={"dihedral": True}), seed=0)
    batch = task.examples(torch.arange(120), 0)
    assert (torch.where(batch.targets == PATH, torch.tensor(2), batch.targets) == batch.inputs).all()


def test_a_maze_that_cannot_be_made_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"no maze of side 5 with a single shortest path of 24 to 24 steps.*task\.path"):
        make_puzzle_task(MazeTask(side=5, walls=0.6, path=(24, 24)), seed=0).evaluation_examples(torch.arange(1))
