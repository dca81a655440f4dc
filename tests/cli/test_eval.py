"""``looprepro eval``: more numbers of a trained cell, nothing trained again, and collect finds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.cli.evaluate import asked_for
from looprepro.config.cell import LanguageEvaluation
from looprepro.config.presence import Presence
from looprepro.files.errors import ConfigError
from looprepro.planning import expand, load_sweep
from looprepro.store import CellRecord


@pytest.fixture
def trained(finished: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    """A copy of the folder in which tiny was run and collected."""
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    return folder


@pytest.fixture
def here(trained: Path) -> Path:
    return trained


def weights(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


def test_a_new_budget_is_measured_without_training_and_collected(trained: Path, looprepro: Callable[..., Any]) -> None:
    import pandas

    (cell,) = [path.name for path in (trained / "runs" / "cells").iterdir() if "s1" in path.name and "diagonal" in path.name]
    before = weights(trained / "runs")
    done = looprepro("eval", cell, "T=2,5", "--json")
    assert done.returncode == 0, done.stderr
    documents = list(json.loads(done.stdout)["evaluations"].values())
    assert [(d["evaluation"]["T"], d["evaluation"]["items"]) for d in documents] == [(2, 8), (5, 8)]  # items as in its sweep
    assert weights(trained / "runs") == before
    attempts = sorted(path.name for path in (trained / "runs" / "cells" / cell / "attempts").iterdir())

    again = looprepro("eval", cell[: cell.rindex("-") + 4], "T=2,5")
    assert again.returncode == 0, again.stderr
    assert "T=5  last_token_accuracy  " in again.stdout
    assert sorted(path.name for path in (trained / "runs" / "cells" / cell / "attempts").iterdir()) == attempts

    assert looprepro("collect").returncode == 0
    rows = pandas.read_parquet(trained / "results" / "smoke" / "results.parquet")
    found = rows[(rows["cell"] == cell) & (rows["metric"] == "last_token_accuracy")]
    assert {2, 3, 5, 6} <= set(found["T"])
    table = looprepro("table", "./tiny.yaml", "--format", "csv")
    assert table.returncode == 0, table.stderr
    assert "T = 5" not in table.stdout

    roles = set(zip(found["T"], found["role_T"], strict=True))
    assert looprepro("eval", cell, "T=3").returncode == 0, "a budget of the sweep"
    assert looprepro("collect").returncode == 0
    rows = pandas.read_parquet(trained / "results" / "smoke" / "results.parquet")
    found = rows[(rows["cell"] == cell) & (rows["metric"] == "last_token_accuracy")]
    assert set(zip(found["T"], found["role_T"], strict=True)) == roles, "which keeps its place in the table"


def test_after_a_failure_the_same_command_tries_again_and_collect_waits_for_nothing(
    trained: Path, looprepro: Callable[..., Any]
) -> None:
    cell = next((trained / "runs" / "cells").iterdir())
    (weights_file,) = cell.glob("attempts/*/checkpoint-*/weights.safetensors")
    kept = weights_file.read_bytes()
    weights_file.write_bytes(kept[:-1])
    failed = looprepro("eval", cell.name, "T=4")
    assert failed.returncode == 1
    assert "does not match its checksum" in failed.stderr
    assert looprepro("collect").returncode == 0
    weights_file.write_bytes(kept)
    done = looprepro("eval", cell.name, "T=4")
    assert done.returncode == 0, done.stderr
    assert "T=4  last_token_accuracy" in done.stdout


def test_a_language_model_is_asked_for_its_tasks_at_every_budget() -> None:
    """``looprepro eval CELL T=1,8,16,32,48 --tasks perplexity,lambada``: what is not said stays as it was measured before."""
    cell = next(iter(expand(load_sweep("table4"), "mini").cells)).cell
    before = LanguageEvaluation(T=8, items=7, questions=5)
    record = CellRecord("a", {}, Presence("done"), evaluations={"e": {"evaluation": before.model_dump(mode="json")}})
    asked = asked_for(cell, record, ["T=1,8,16,32,48", "draws=3", "lambada=./own.jsonl"], "perplexity,lambada")
    assert [one.T for one in asked] == [1, 8, 16, 32, 48]
    assert {one.metrics for one in asked} == {("lambada", "perplexity")}
    assert {(one.items, one.questions, one.draws, one.lambada) for one in asked} == {(7, 5, 3, "./own.jsonl")}
    with pytest.raises(ConfigError, match="metrics"):
        asked_for(cell, record, ["T=1"], "perplexity,lambda")


def test_a_cell_that_is_not_trained_says_so_whatever_is_asked(trained: Path, looprepro: Callable[..., Any]) -> None:
    cell = min((trained / "runs" / "cells").iterdir())
    (cell / "result.json").unlink()
    done = looprepro("eval", cell.name)
    assert (done.returncode, "has no trained weights" in done.stderr) == (1, True)


def test_what_cannot_be_measured_is_said_in_one_line(trained: Path, looprepro: Callable[..., Any]) -> None:
    cell = next((trained / "runs" / "cells").iterdir()).name
    for arguments, said in (
        (("nothing", "T=2"), "no cell is called 'nothing'"),
        ((cell, "item=3"), "Did you mean 'items'?"),
        ((cell, "T=0"), "T: Input should be greater than or equal to 1"),
        ((cell, "T=2", "--tasks", "perplexity"), "--tasks belongs to language models"),
    ):
        done = looprepro("eval", *arguments)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for folder in (trained / "runs" / "cells" / cell / "attempts").glob("*/checkpoint-*"):
        shutil.rmtree(folder)
    gone = looprepro("eval", cell, "T=9")
    assert gone.returncode == 1
    assert "the weights of" in gone.stderr
    assert "--retrain" in gone.stderr
