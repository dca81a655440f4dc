"""How far a command is, training and measuring together, and what it knows before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from looprepro.cli.main import app
from looprepro.cli.progress import Estimate
from looprepro.config.presence import Presence
from looprepro.launch.base import Progress, Work, work_of
from looprepro.launch.local import LocalExecutor
from looprepro.planning import expand, load_sweep
from looprepro.store import Store

WANTED = (("first", {}), ("second", {}))
WORK = [Work("a", {}, WANTED, steps=100, measuring=50.0), Work("b", {}, WANTED, steps=100, measuring=50.0)]


def test_measuring_counts_by_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    estimate = Estimate(WORK)
    trained = Presence("running", step=100, evaluations=frozenset({"first", "another sweep's"}))
    start = estimate.done(Progress({"a": Presence("planned"), "b": Presence("running", step=20)}, frozenset()))
    assert (start, estimate.total) == (20, 300)
    assert estimate.left(start) is None
    now = 60.0
    assert estimate.done(Progress({"a": trained, "b": Presence("done", step=100)}, frozenset({"b"}))) == 125 + 150
    assert estimate.left(275.0) == pytest.approx(60.0 * 25 / 255)


def test_a_cell_that_is_only_to_be_measured_is_not_over_at_its_last_step() -> None:
    (planned, *_) = expand(load_sweep("fprm_scaling"), "mini").cells
    (work,) = work_of([planned])
    estimate = Estimate([work])
    done = estimate.done(Progress({work.id: Presence("done", step=work.steps, has_weights=True)}, frozenset()))
    assert done == work.steps
    assert estimate.total - done == pytest.approx(1.36 * work.steps, rel=0.01), "its fifteen solvers cost more than training"


def test_a_sweep_on_this_machine_knows_the_estimates_of_its_plan(
    tmp_path: Path, tiny_sweep: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {}

    def run(executor: LocalExecutor, store: Store, work: list[Work]) -> Iterator[Progress]:
        known.update(executor.hours)
        yield Progress({}, frozenset(), finished=True)

    monkeypatch.setattr(LocalExecutor, "run", run)
    (tmp_path / "tiny.yaml").write_text(tiny_sweep())
    target = (str(tmp_path / "tiny.yaml"), "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"))
    assert CliRunner().invoke(app, ["sweep", *target]).exit_code == 0
    planned = json.loads(CliRunner().invoke(app, ["plan", *target, "--json"]).stdout)
    assert known == {cell["id"]: cell["device_hours"] for cell in planned["cells"]}
    assert len(known) == 4
    assert min(known.values()) > 0
