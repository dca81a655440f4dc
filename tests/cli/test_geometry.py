"""``looprepro geometry`` on a trained cell, on its checkpoint, and on a fresh operator."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from looprepro.cli.main import app
from looprepro.config.cell import Cell, FixedPointReasoner, ReasonerTraining, StateTrackingTask
from looprepro.files.errors import ConfigError, LoopreproError
from looprepro.launch.base import work_of
from looprepro.launch.inline import InlineExecutor
from looprepro.planning import expand, load_sweep
from looprepro.store import Store
from looprepro.worker import run_manifest


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["geometry", *arguments], catch_exceptions=True)
    if isinstance(result.exception, LoopreproError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """runs/ with one finished cell: the smallest G = 2 run of two steps."""
    runs = tmp_path_factory.mktemp("geometry") / "runs"
    expansion = expand(
        load_sweep("table1"),
        "smoke",
        only=["method=G=2", "group=A5"],
        seeds="0",
        overrides=["training.steps=2", "training.warmup=0"],
    )
    for _ in InlineExecutor(lambda manifest: run_manifest(manifest, redirect=False)).run(Store(runs), work_of(expansion.cells)):
        pass
    return runs, expansion.cells[0].id


def test_a_cell_and_its_checkpoint_are_the_same_operator(trained: tuple[Path, str]) -> None:
    runs, id = trained
    by_cell = run(id[:-3], "--runs", str(runs), "-T", "2,4,6", "--json")
    assert (by_cell["width"], by_cell["groups"], list(by_cell["budgets"])) == (16, 2, ["2", "4", "6"])
    assert by_cell["budgets"]["6"]["defect_blockwise"] < 1e-12
    (checkpoint,) = (runs / "cells" / id / "attempts" / "0001").glob("checkpoint-*")
    by_folder = run(str(checkpoint), "-T", "2,4,6", "--json")
    assert by_folder["budgets"] == by_cell["budgets"]
    stored = next(iter(Store(runs).records([id]))).evaluations
    assert {document["metrics"]["defect_sphere"]["value"] for document in stored.values()} == {
        budget["defect_sphere"] for budget in by_cell["budgets"].values()
    }


def test_a_fresh_diagonal_has_equal_magnitudes_and_no_defect() -> None:
    found = run("--method", "diagonal", "--width", "8", "-T", "4", "--json")
    assert found["operator"] == "freshly initialised diagonal"
    assert found["spectrum"]["re"] == pytest.approx([math.sqrt(0.2)] * 8)
    assert found["budgets"]["4"]["defect_sphere"] < 1e-12
    assert found["budgets"]["4"]["log_contraction"] == pytest.approx(math.log(0.2) / 2)
    assert "defect_sphere" in run("--method", "diagonal", "--width", "8", "-T", "4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one operator"),
        (("x", "--method", "diagonal"), "name one operator"),
        (("nothing",), "no cell and no checkpoint is called 'nothing'"),
        (("--method", "conformal"), "conformal needs groups"),
        (("--method", "diagonal", "-T", "x"), "budgets 'x' are not whole numbers"),
        (("--method", "diagonal", "-T", "0"), "budget 0 is too small"),
    ],
)
def test_what_is_not_one_operator_is_one_line_with_the_remedy(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(LoopreproError, match=message):
        run(*arguments, "--runs", str(tmp_path))


def test_the_widest_operator_of_the_paper_is_measured_in_seconds() -> None:
    """Width 1024, T = 48, 256 probes: about 2.5 s of CPU with the imports; the bound leaves room for a slow machine."""
    started = time.process_time()
    found = run("--method", "conformal", "--groups", "2", "--width", "1024", "--json")
    assert time.process_time() - started < 10.0
    assert found["budgets"]["48"]["defect_blockwise"] < 1e-12


def test_a_model_without_an_operator_is_refused_in_one_line(tmp_path: Path) -> None:
    cell = Cell(task=StateTrackingTask(), model=FixedPointReasoner(), training=ReasonerTraining(), seed=0)
    folder = tmp_path / "cell" / "attempts" / "0001" / "checkpoint-00000001"
    folder.mkdir(parents=True)
    (folder / "state.json").touch()
    (tmp_path / "cell" / "cell.json").write_text(json.dumps({"config": cell.model_dump(mode="json")}))
    with pytest.raises(ConfigError, match="has no linear operator"):
        run(str(folder))
