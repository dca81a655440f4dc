"""Which cells go into which job of which array: a pure function of counts and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def split_into_arrays(cells: Sequence[Item], *, cells_per_job: int, max_array_size: int) -> list[list[list[Item]]]:
    """Arrays of jobs of cells, in order: ``arrays[a][i]`` are the cells of index ``i`` of array ``a``.

    Every array starts at index 0, because SLURM's MaxArraySize limits the highest *index* (to MaxArraySize - 1), not the number
    of jobs: a second array that went on counting would be refused. ValueError for limits below 1.
    """
    if cells_per_job < 1 or max_array_size < 1:
        raise ValueError(f"cells_per_job ({cells_per_job}) and max_array_size ({max_array_size}) must be at least 1")
    jobs = [list(cells[start : start + cells_per_job]) for start in range(0, len(cells), cells_per_job)]
    return [jobs[start : start + max_array_size] for start in range(0, len(jobs), max_array_size)]
