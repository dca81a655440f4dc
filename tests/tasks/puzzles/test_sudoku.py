"""Sudoku: rules, unique solutions by an independent solver, symmetries, and a split that no symmetry crosses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.config.puzzles import SudokuTask
from looprepro.files.errors import ConfigError
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.sudoku_rules import BOXES, fingerprint, key_count, places

TASKS = {
    4: SudokuTask(side=4, empty=(4, 11), train_items=120, augmentations=8),
    6: SudokuTask(side=6, empty=(8, 22), train_items=60, augmentations=8),
    9: SudokuTask(side=9, empty=(35, 55), train_items=12, augmentations=8),
}


def units(side: int) -> list[list[int]]:
    """Rows, columns and boxes as lists of cells, from the coordinates."""
    height, width = BOXES[side]
    rows = [[r * side + c for c in range(side)] for r in range(side)]
    columns = [[r * side + c for r in range(side)] for c in range(side)]
    boxes = [
        [(top + r) * side + left + c for r in range(height) for c in range(width)]
        for top in range(0, side, height)
        for left in range(0, side, width)
    ]
    return rows + columns + boxes


def count_solutions(side: int, givens: list[int], limit: int) -> int:
    """Knuth's algorithm X on the exact-cover form: shares nothing with the solver under test."""
    all_units = units(side)
    chosen: dict[Any, set[Any]] = {}
    for cell, digit in itertools.product(range(side * side), range(1, side + 1)):
        if givens[cell] in (0, digit):
            chosen[cell, digit] = {("cell", cell)} | {(index, digit) for index, unit in enumerate(all_units) if cell in unit}
    columns: dict[Any, set[Any]] = {}
    for choice, needs in chosen.items():
        for need in needs:
            columns.setdefault(need, set()).add(choice)
    if len(columns) < side * side + 3 * side * side:
        return 0

    def search(open_columns: dict[Any, set[Any]], left: int) -> int:
        if not open_columns:
            return 1
        column = min(open_columns, key=lambda name: len(open_columns[name]))
        found = 0
        for choice in sorted(open_columns[column]):
            covered = chosen[choice]
            clashing = set().union(*(open_columns[need] for need in covered))
            rest = {name: members - clashing for name, members in open_columns.items() if name not in covered}
            found += search(rest, left - found)
            if found >= left:
                break
        return found

    return search(columns, limit)


@pytest.mark.parametrize("side", [4, 6, 9])
def test_every_puzzle_has_one_solution_and_it_is_the_target(side: int) -> None:
    task = make_puzzle_task(TASKS[side], seed=1)
    count = {4: 40, 6: 16, 9: 3}[side]
    train, test = task.examples(torch.arange(count), 0), task.evaluation_examples(torch.arange(count))
    for batch in (train, test):
        givens, solutions = (batch.inputs - 1).tolist(), (batch.targets - 1).tolist()
        for puzzle, solution in zip(givens, solutions, strict=True):
            assert all(sorted(solution[cell] for cell in unit) == list(range(1, side + 1)) for unit in units(side))
            assert all(given in (0, digit) for given, digit in zip(puzzle, solution, strict=True))
            assert count_solutions(side, puzzle, 2) == 1
        low, high = TASKS[side].empty
        assert batch.difficulty.tolist() == [puzzle.count(0) for puzzle in givens]
        assert all(low <= empty <= high for empty in batch.difficulty.tolist())
    assert (task.vocabulary, task.time, task.grid) == (side + 2, side**2, (side, side))


def test_the_independent_solver_counts() -> None:
    """288 grids of side 4 (a known number); a puzzle with two solutions."""
    assert count_solutions(4, [0] * 16, 1000) == 288
    assert count_solutions(4, [1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1], 2) == 1
    assert count_solutions(4, [1, 1] + [0] * 14, 2) == 0


def orbit(side: int, cells: list[int]) -> set[tuple[int, ...]]:
    """Every image under bands, stacks, rows, columns, transposition, digits renamed in order of appearance."""
    height, width = BOXES[side]

    def lines(size: int) -> list[list[int]]:
        groups = [list(range(g, g + size)) for g in range(0, side, size)]
        inner = itertools.product(*(list(itertools.permutations(group)) for group in groups))
        return [list(itertools.chain(*order)) for choice in inner for order in itertools.permutations(choice)]

    images = set()
    for rows, columns in itertools.product(lines(height), lines(width)):
        board = [cells[r * side + c] for r in rows for c in columns]
        turned = [board[c * side + r] for r in range(side) for c in range(side)]
        for image in (board, turned) if height == width else (board,):
            names: dict[int, int] = {0: 0}
            images.add(tuple(names.setdefault(digit, len(names)) for digit in image))
    return images


def test_no_test_puzzle_is_an_image_of_a_training_puzzle() -> None:
    """Side 4, by brute force over all 128 positions and all names of digits; augmented training puzzles included."""
    task = make_puzzle_task(TASKS[4], seed=0)
    trained = {min(orbit(4, cells)) for cells in (task.examples(torch.arange(240), 0).inputs - 1).tolist()}
    tested = {min(orbit(4, cells)) for cells in (task.evaluation_examples(torch.arange(120)).inputs - 1).tolist()}
    assert len(trained) > 40
    assert len(tested) > 20
    assert not trained & tested


@settings(max_examples=25, deadline=None)
@given(side=st.sampled_from([4, 6, 9]), seed=st.integers(0, 2**20))
def test_the_fingerprint_sees_no_symmetry(side: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    batch = make_puzzle_task(TASKS[side], seed=0).evaluation_examples(torch.arange(3))
    givens, solutions = (batch.inputs - 1).numpy(), (batch.targets - 1).numpy()
    shown = places(side, generator.integers(0, 2**32, size=(3, key_count(side))))
    digits = np.concatenate([[0], generator.permutation(side) + 1])
    assert all(sorted(image) == list(range(side * side)) for image in shown.tolist())
    moved = [digits[np.take_along_axis(cells, shown, axis=1)] for cells in (givens, solutions)]
    assert (fingerprint(side, *moved) == fingerprint(side, givens, solutions)).all()


def test_the_fingerprint_tells_most_puzzles_apart() -> None:
    batch = make_puzzle_task(TASKS[6], seed=0).evaluation_examples(torch.arange(60))
    marks = fingerprint(6, (batch.inputs - 1).numpy(), (batch.targets - 1).numpy())
    assert len(set(marks.tolist())) == 60


@pytest.mark.parametrize("side", [4, 6])
def test_an_augmented_puzzle_is_an_image_of_the_puzzle(side: int) -> None:
    config = TASKS[side].model_copy(update={"train_items": 5})
    plain = make_puzzle_task(config.model_copy(update={"augmentations": 0}), seed=0).examples(torch.arange(5), 0)
    task = make_puzzle_task(config, seed=0)
    known = [orbit(side, cells) for cells in (plain.inputs - 1).tolist()]
    order = [min(found) for found in known]
    changed = 0
    for epoch in range(4):
        batch = task.examples(torch.arange(5) + 5 * epoch, 0)
        images = (batch.inputs - 1).tolist()
        assert sorted(min(orbit(side, image)) for image in images) == sorted(order)
        changed += sum(image not in (plain.inputs - 1).tolist() for image in images)
    assert changed > 10


def test_there_are_only_as_many_images_as_asked_for() -> None:
    task = make_puzzle_task(SudokuTask(side=6, empty=(8, 12), train_items=1, augmentations=3), seed=0)
    images = {tuple(cells) for cells in task.examples(torch.arange(200), 0).inputs.tolist()}
    assert len(images) == 4


def test_puzzles_belong_to_the_data_seed_and_their_order_to_the_seed() -> None:
    config = TASKS[6].model_copy(update={"augmentations": 0, "train_items": 10})
    first, second = (make_puzzle_task(config, seed).examples(torch.arange(10), 0).inputs.tolist() for seed in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)
    other = make_puzzle_task(config.model_copy(update={"data_seed": 5}), 0).examples(torch.arange(10), 0).inputs.tolist()
    assert sorted(other) != sorted(first)


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    task = make_puzzle_task(SudokuTask(side=4, empty=(15, 15)), seed=0)
    with pytest.raises(ConfigError, match=r"no Sudoku of side 4 with 15 to 15 empty cells.*Lower task\.empty"):
        task.evaluation_examples(torch.arange(1))
    with pytest.raises(ConfigError, match=r"no-such-data has not been prepared.*looprepro data prepare no-such-data"):
        make_puzzle_task(SudokuTask(data="no-such-data"), seed=0)
