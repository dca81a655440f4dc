"""The tasks of the fixed-point reasoners: examples by index, their grading, and the data behind them. Knows no model."""

from __future__ import annotations

from looprepro.config.puzzles import ArcTask, MazeTask, StateTrackingTask, SudokuTask
from looprepro.tasks.puzzles.arc import Arc
from looprepro.tasks.puzzles.maze import Maze
from looprepro.tasks.puzzles.state_tracking import StateTracking
from looprepro.tasks.puzzles.sudoku import Sudoku
from looprepro.tasks.puzzles.task import PuzzleBatch, PuzzleTask

__all__ = ["PuzzleBatch", "PuzzleTask", "make_puzzle_task"]


def make_puzzle_task(config: StateTrackingTask | SudokuTask | MazeTask | ArcTask, seed: int) -> PuzzleTask:
    """The task that ``config`` describes, for a run with ``seed``. Raises :class:`ConfigError` where its data is missing."""
    match config:
        case StateTrackingTask():
            return StateTracking(config, seed)
        case SudokuTask():
            return Sudoku(config, seed)
        case MazeTask():
            return Maze(config, seed)
        case ArcTask():
            return Arc(config, seed)
