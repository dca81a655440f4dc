"""The 60M model takes a real step through the worker on the CPU, long before a GPU sees it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from looprepro.config.cell import Execution
from looprepro.config.language_formulas import model_parameters
from looprepro.launch.base import manifest_of, work_of
from looprepro.planning import expand, load_sweep
from looprepro.store import Store
from looprepro.training import checkpoint
from looprepro.training.run import run_cell
from looprepro.worker import run_manifest


@pytest.mark.slow
def test_the_60m_model_takes_one_step_through_the_worker(corpus_of, tmp_path: Path) -> None:
    """Micro-batch 1, sequence 128; everything else as at scale paper."""
    overrides = [f"task.data={corpus_of(32768)}", "task.sequence=128", "training.batch_tokens=128", "training.micro_batch=1"]
    (planned,) = expand(load_sweep("table8"), "paper", overrides=overrides, only=["method=G=2"]).cells
    assert model_parameters(planned.cell) == 61_125_120 - 2 * 640 + 320 + 2 * 2  # a diagonal's rates for omega and two groups'

    def one_step(cell, evaluations, execution, attempt, _stop):
        return run_cell(cell, evaluations, execution, attempt, lambda: "one step" if attempt.step >= 1 else None)

    store = Store(tmp_path / "runs")
    (work,) = work_of([planned])
    execution = Execution.model_validate(work.execution.model_dump() | {"device": "cpu", "ranks": 1})
    run_manifest(manifest_of(store, [replace(work, execution=execution)], {}), run_cell=one_step, redirect=False)
    reading = store.reading(planned.id)
    assert reading.highest is not None
    assert (reading.highest.status, reading.presence.step) == ("interrupted", 1), reading.presence.cause
    attempt = tmp_path / "runs" / "cells" / planned.id / "attempts" / "0001"
    (record,) = map(json.loads, (attempt / "metrics.jsonl").read_text().splitlines())
    assert 9 < record["loss"] < 12  # ln 32768 = 10.4
    assert record["tokens"] == 128
    saved = checkpoint.load(attempt / "checkpoint-00000001")
    assert sum(tensor.numel() for tensor in saved.tensors["weights"].values()) == model_parameters(planned.cell)
    shutil.rmtree(attempt)  # 700 MB
