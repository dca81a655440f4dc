"""What is wrong with a request is said in one line on stderr, with what to do, and the stated exit code. Nothing is lost."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.cli.options import expansions_of, readable_sweeps
from looprepro.files.errors import ConfigError
from looprepro.planning import sweeps_folder

Looprepro = Callable[..., Any]


def listing(folder: Path) -> dict[str, int]:
    """Every path below ``folder`` with its modification time."""
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def fails(done: Any, code: int, *patterns: str) -> None:
    """``done`` printed no data, ended with ``code``, and said one line of error that has every pattern."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if not line.startswith("scale smoke: ")]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith("error: ")
    for pattern in patterns:
        assert re.search(pattern, errors[0]), (pattern, errors[0])


REQUESTS = {
    "unknown sweep": (["tabel1"], ["unknown sweep 'tabel1'", "Did you mean 'table1'"]),
    "no sweep": ([], ["no sweep named", "looprepro list"]),
    "missing file": (["./none.yaml"], ["none.yaml does not exist"]),
    "unknown key": (["./tiny.yaml", "model.widht=16"], ["widht", "width"]),
    "odd width": (["./tiny.yaml", "model.width=17"], ["width 17 is odd", "even"]),
    "T = 0": (["./tiny.yaml", "evaluations.budgets=0"], ["budget '0'", "at least 1"]),
    "not a number": (["./tiny.yaml", "training.lr=fast"], ["training.lr"]),
    "unknown scale": (["./tiny.yaml", "--scale", "papre"], ["no scale 'papre'"]),
    "seeds": (["./tiny.yaml", "--seeds", "4-1"], ["4-1"]),
    "only": (["./tiny.yaml", "--only", "method=diagnoal"], ["diagnoal", "diagonal"]),
    "executor": (["./tiny.yaml", "--executor", "cloud"], ["unknown executor 'cloud'"]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_wrong_request_ends_with_2_before_anything_is_written(here: Path, looprepro: Looprepro, name: str) -> None:
    arguments, patterns = REQUESTS[name]
    before = listing(here)
    fails(looprepro("sweep", *arguments), 2, *patterns)
    assert listing(here) == before


@pytest.mark.parametrize(
    ("old", "new", "patterns"),
    [
        ("groups: 2", "groups: 3", ["groups 3 does not divide the 4 planes of width 8", "1, 2, 4"]),
        ("width: 8", "width: 9", ["width 9 is odd"]),
        ("[T_max, 2T_max]", "[0, T_max]", ["budget '0'", "at least 1"]),
        ("  training: {", "  training: [", [r"tiny\.yaml:\d+", "not valid YAML"]),
        ("batch: 4", "bacth: 4", [r"tiny\.yaml:\d+", "bacth", "batch"]),
        ("layout:", "layuot:", [r"tiny\.yaml:22: unknown key 'layuot'", "Did you mean 'layout'"]),
        ("title: Tiny", "title: Tiny\ntitle: Twice", [r"tiny\.yaml:4: key 'title' stands twice"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_sweep_file_ends_with_2_and_names_the_place(
    here: Path, looprepro: Looprepro, old: str, new: str, patterns: list[str]
) -> None:
    file = here / "tiny.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    before = listing(here)
    fails(looprepro("sweep", "./tiny.yaml"), 2, *patterns)
    assert listing(here) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "./tiny.yaml", "--runs", "file"],
        ["sweep", "./tiny.yaml", "--runs", "file/below"],
        ["status", "./tiny.yaml", "--runs", "file"],
        ["collect", "--runs", "file"],
        ["collect", "--results", "file"],
        ["gc", "--runs", "file"],
    ],
    ids=" ".join,
)
def test_a_file_where_a_folder_is_wanted_is_named(here: Path, looprepro: Looprepro, arguments: list[str]) -> None:
    """As root every folder can be written, so a file stands in for the folder that cannot."""
    (here / "file").write_text("mine")
    fails(looprepro(*arguments), 1, "file", r"Not a directory|not a folder|File exists", "Check the path|choose another")
    assert (here / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "patterns"),
    [
        (["table", "./tiny.yaml"], 1, ["nothing has been collected at scale smoke", "looprepro collect"]),
        (["table", "./tiny.yaml", "--format", "word"], 2, ["unknown format 'word'", "latex"]),
        (["plot", "spectrum"], 1, ["nothing has been collected"]),
        (["plot", "spectre"], 2, ["unknown figure 'spectre'"]),
        (["collect", "--scale", "papre"], 2, ["unknown scale 'papre'", "Did you mean 'paper'"]),
        (["train", "none.yaml"], 2, ["cannot read none.yaml"]),
        (["train", "tiny.yaml"], 2, ["tiny.yaml", "looprepro plan SWEEP --cell ID"]),
        (["plan", "./tiny.yaml", "--cell", "nobody"], 2, ["no cell 'nobody'", "--cells"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_other_commands_say_what_is_wrong(
    here: Path, looprepro: Looprepro, arguments: list[str], code: int, patterns: list[str]
) -> None:
    before = listing(here)
    fails(looprepro(*arguments), code, *patterns)
    assert listing(here) == before


def test_usage_errors_end_with_2(looprepro: Looprepro) -> None:
    for arguments in (["sweeep"], ["plan", "--scael", "smoke"], ["sweep", "./tiny.yaml", "--jobs", "0"]):
        done = looprepro(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback(looprepro: Looprepro) -> None:
    done = looprepro("--debug", "plan", "tabel1")
    assert "Traceback" in done.stderr
    assert "unknown sweep 'tabel1'" in done.stderr


def test_another_configuration_under_the_same_id_ends_with_2_and_is_not_overwritten(
    finished: tuple[Path, Any, Any], here: Path, looprepro: Looprepro
) -> None:
    cells = finished[0] / "runs" / "cells"
    shutil.copytree(cells, here / "runs" / "cells")
    file = sorted((here / "runs" / "cells").iterdir())[0] / "cell.json"
    stored = json.loads(file.read_text())
    stored["config"]["training"]["lr"] = 0.5
    file.write_text(json.dumps(stored))
    (file.parent / "result.json").unlink()  # so that it is wanted again
    before = listing(here / "runs" / "cells")
    done = looprepro("sweep", "./tiny.yaml")
    assert done.returncode == 2
    error = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(error) == 1
    assert "training.lr: stored 0.5, asked 0.01" in error[0]
    assert "nothing was overwritten" in error[0]
    assert listing(here / "runs" / "cells") == before


def test_truncated_weights_are_named_and_the_rest_stays(
    finished: tuple[Path, Any, Any], here: Path, looprepro: Looprepro
) -> None:
    shutil.copytree(finished[0] / "runs", here / "runs")
    cell = sorted((here / "runs" / "cells").glob("*-diagonal-*"))[0]
    weights = next(cell.glob("attempts/*/checkpoint-*/weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-50])
    numbers = {path: path.read_bytes() for path in cell.glob("evaluations/*.json")}
    done = looprepro("sweep", "./tiny.yaml", "evaluations.budgets=1", "--only", "method=diagonal", "--jobs", "1")
    assert done.returncode == 1
    named = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(named) == 1, done.stderr
    assert cell.name in named[0]
    assert "weights.safetensors does not match its checksum" in named[0]
    assert "--retrain" in named[0]
    assert all(path.read_bytes() == content for path, content in numbers.items())
    again = looprepro("sweep", "./tiny.yaml")  # what is done stays done
    assert again.returncode == 0
    assert "nothing to run" in again.stderr


def test_a_damaged_configuration_is_named_and_the_sweep_writes_it_anew(
    finished: tuple[Path, Any, Any], here: Path, looprepro: Looprepro
) -> None:
    shutil.copytree(finished[0] / "runs", here / "runs")
    file = min((here / "runs" / "cells").glob("*-diagonal-*/cell.json"))
    before = file.read_bytes()
    file.write_bytes(before[:100])
    fails(looprepro("geometry", file.parent.name), 1, f"cell.json of {file.parent.name} cannot be read", "Call its sweep again")
    again = looprepro("sweep", "./tiny.yaml")
    assert (again.returncode, file.read_bytes()) == (0, before)
    assert f"{file.parent.name}: its cell.json could not be read and was written anew" in again.stderr
    assert "nothing to run" in again.stderr
    assert looprepro("geometry", file.parent.name).returncode == 0


def test_a_cut_training_log_is_named(finished: tuple[Path, Any, Any], here: Path, looprepro: Looprepro) -> None:
    shutil.copytree(finished[0] / "runs", here / "runs")
    file = min((here / "runs" / "cells").glob("*-diagonal-*/attempts/0001/metrics.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]) + lines[-1][:20])
    done = looprepro("collect")
    assert done.returncode == 1
    assert re.search(rf"warning: .*{file.parents[2].name}.*metrics.jsonl: it ends at step \d of 8", done.stderr), done.stderr


def test_a_misspelt_metric_of_a_table_names_the_nearest(
    finished: tuple[Path, Any, Any], here: Path, looprepro: Looprepro
) -> None:
    text = (here / "tiny.yaml").read_text()
    (here / "tiny.yaml").write_text(text.replace("metric: last_token_accuracy", "metric: last_token_acuracy"))
    done = looprepro("table", "./tiny.yaml", "--results", str(finished[0] / "results"))
    fails(done, 2, "no cell of tiny has the metric 'last_token_acuracy'. Did you mean 'last_token_accuracy'")


def test_of_all_sweeps_one_that_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table1 = (sweeps_folder() / "table1.yaml").read_text(encoding="utf-8")
    (tmp_path / "table1.yaml").write_text(table1, encoding="utf-8")
    own = table1.replace("name: table1", "name: own").replace("injection.method: diagonal", 'injection.method: "gone:Own"')
    (tmp_path / "own.yaml").write_text(own, encoding="utf-8")
    monkeypatch.setattr("looprepro.planning.catalog.sweeps_folder", lambda: tmp_path)
    assert [sweep.name for sweep in readable_sweeps(["own", "table1"])] == ["table1"]
    said = capsys.readouterr().err
    assert re.match(r"left out: .*own.yaml:\d+: operator module 'gone' is not found", said)
    with pytest.raises(ConfigError, match="'gone' is not found"):
        expansions_of(None, True, "smoke", None, None)
    assert [expansion.sweep.name for expansion in expansions_of(None, True, "smoke", None, None, lenient=True)] == ["table1"]
