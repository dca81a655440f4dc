"""Tasks: data, batches and metrics. Knows no model."""

from __future__ import annotations

from looprepro.config.cell import GroupWordsTask
from looprepro.tasks.group_words import GroupWords
from looprepro.tasks.task import Batch, Count, Task

__all__ = ["Batch", "Count", "GroupWords", "Task", "make_task"]


def make_task(config: GroupWordsTask, seed: int, steps: int, batch: int) -> GroupWords:
    """The task that ``config`` describes, for a run of ``steps`` optimiser steps of ``batch`` sequences."""
    return GroupWords(config, seed, steps, batch)
