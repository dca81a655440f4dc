"""Cells with several ranks: a job to themselves, the GPUs they need, and tasks where the profile makes them ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from looprepro.config.cell import Execution
from looprepro.files.errors import ConfigError
from looprepro.launch.base import Work
from looprepro.launch.batch_script import batch_script
from looprepro.launch.profile import Profile, load_profile
from looprepro.launch.slurm import arrays_of, planned_scripts
from looprepro.store import Store


def work(ranks: int, count: int = 3, device: str = "cuda") -> list[Work]:
    execution = Execution.model_validate({"ranks": ranks, "device": device})
    return [Work(f"cell-{ranks}-{number}", {}, (), execution) for number in range(count)]


def profile(**keys: object) -> Profile:
    settings = {"name": "mine", "partition": "gpu", "memory": "64G", "time": "1:00:00", "gpus": 8, "cells_per_job": 1}
    return Profile.model_validate(settings | keys)


def test_a_cell_of_several_ranks_has_its_job_to_itself() -> None:
    arrays = arrays_of([*work(1), *work(8)], profile(cells_per_job=4))
    assert [[len(job) for job in array.jobs] for array in arrays] == [[3], [1, 1, 1]]


def test_the_shipped_profiles_have_the_gpus_of_the_language_models() -> None:
    assert len(arrays_of(work(8), load_profile("h100x8"))[0].jobs) == 3
    with pytest.raises(ConfigError, match=r"want 8 GPUs of a node, and profile mine asks for 1.*h100x8.*several_ranks"):
        arrays_of(work(8), profile(gpus=1))
    assert len(arrays_of(work(2, device="cpu"), load_profile("test"))[0].jobs) == 3


def test_one_profile_serves_cells_of_one_and_of_several_gpus(tmp_path: Path) -> None:
    """Each kind gets a batch script of its own, with the GPUs, time and packing of the profile that is named for it."""
    h100 = load_profile("h100")
    narrow, wide = arrays_of([*work(8), *work(1)], h100)
    assert (narrow.profile, wide.profile) == (h100, load_profile("h100x8"))
    assert [[len(job) for job in array.jobs] for array in (narrow, wide)] == [[2, 1], [1, 1, 1]]
    store = Store(tmp_path / "runs")
    one, eight = planned_scripts(store, [*work(8), *work(1)], h100)
    assert "--gres=gpu:h100:1\n" in one
    assert "--gres=gpu:h100:8\n" in eight
    assert "--time=24:00:00\n" in eight


def test_tasks_of_a_job_are_ranks_and_must_be_as_many() -> None:
    two_nodes = profile(nodes=2, tasks=4, gpus=4)
    assert len(arrays_of(work(8), two_nodes)) == 1
    for ranks in (1, 4, 16):
        with pytest.raises(ConfigError, match=rf"starts 8 tasks a job.*have {ranks} ranks"):
            arrays_of(work(ranks), two_nodes)
    text = batch_script(two_nodes, name="looprepro-1", folder=Path("/r/s/looprepro-1"), source=Path("/r/x"), jobs=1, threads=1)
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --ntasks-per-node=4\n" in text


def test_several_tasks_leave_no_place_for_several_cells() -> None:
    with pytest.raises(ValueError, match="several tasks runs one cell"):
        profile(tasks=2, cells_per_job=4)
