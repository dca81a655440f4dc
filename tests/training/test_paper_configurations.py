"""Every configuration of the paper's scale is built and takes a real step through the worker, long before a GPU sees it."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

from looprepro.config.cell import Execution
from looprepro.config.formulas import parameters
from looprepro.launch.base import manifest_of, work_of
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.planning import available_sweeps, expand, load_sweep, merge
from looprepro.store import Store
from looprepro.tasks import make_task
from looprepro.training.run import run_cell
from looprepro.worker import run_manifest


def paper_cells():
    """One cell per distinct configuration of the paper's scale, over all sweeps of group words."""
    sweeps = [sweep for sweep in map(load_sweep, available_sweeps()) if "paper" in sweep.scales]
    cells = merge([expand(sweep, "paper", seeds="0") for sweep in sweeps])
    return {planned.configuration: planned for planned in cells if planned.cell.family == "words"}


@pytest.mark.slow
@pytest.mark.parametrize("planned", paper_cells().values(), ids=lambda planned: planned.id)
def test_a_paper_configuration_has_the_planned_parameters_and_takes_one_step_through_the_worker(planned, tmp_path):
    cell = planned.cell
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    with torch.device("meta"):
        model = LoopedTransformer(cell.model, task.vocabulary, task.max_time)
    assert sum(p.numel() for p in model.parameters()) == parameters(cell.model, task.vocabulary)

    def one_step(cell, evaluations, execution, attempt, _stop):
        return run_cell(cell, evaluations, execution, attempt, lambda: "one step" if attempt.step >= 1 else None)

    store = Store(tmp_path / "runs")
    (work,) = work_of([planned])
    work = replace(work, execution=Execution.model_validate(work.execution.model_dump() | {"device": "cpu"}))
    run_manifest(manifest_of(store, [work], {}), run_cell=one_step, redirect=False)
    reading = store.reading(planned.id)
    assert reading.highest is not None
    assert (reading.highest.status, reading.presence.step) == ("interrupted", 1), reading.presence.cause
    folder = tmp_path / "runs" / "cells" / planned.id
    assert (folder / "attempts/0001/checkpoint-00000001").is_dir()
    shutil.rmtree(folder)  # 250 MB each
