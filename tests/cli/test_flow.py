"""From a sweep file to a table and a figure: each command does its part, and no more than its part."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import yaml

from looprepro.store import Store

Looprepro = Callable[..., Any]
Start = Callable[..., subprocess.Popen[str]]
Finished = tuple[Path, Any, Any]


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below ``folder`` with its modification time and size."""
    return {str(p.relative_to(folder)): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in sorted(folder.rglob("*"))}


def attempts(folder: Path) -> dict[str, int]:
    """Cell -> number of its attempts."""
    return {cell.name: len(list((cell / "attempts").iterdir())) for cell in (folder / "runs" / "cells").iterdir()}


def ended(folder: Path) -> set[str]:
    """How the attempts in ``folder`` ended."""
    return {json.loads(file.read_text())["status"] for file in folder.glob("runs/cells/*/attempts/*/end.json")}


@pytest.fixture
def copied(finished: Finished, here: Path) -> Path:
    """``here`` with the finished runs and results in it, to be changed."""
    shutil.copytree(finished[0] / "runs", here / "runs")
    shutil.copytree(finished[0] / "results", here / "results")
    return here


def test_sweep_runs_every_cell_once_and_talks_on_stderr(finished: Finished) -> None:
    folder, ran, _ = finished
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert lines[0] == "scale smoke: nothing but speed."
    assert lines[1].startswith("tiny: 4 of 4 cells to run")
    assert lines[-1] == "4/4 cells; next: looprepro collect --scale smoke"
    assert sorted(attempts(folder).values()) == [1, 1, 1, 1]
    assert list((folder / "runs" / "launches").iterdir()) == []


def test_the_same_sweep_again_runs_nothing(copied: Path, looprepro: Looprepro) -> None:
    before = listing(copied / "runs" / "cells")
    done = looprepro("sweep", "./tiny.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "nothing to run: 4 of 4 cells done, 0 diverged"
    assert listing(copied / "runs" / "cells") == before
    as_json = looprepro("sweep", "./tiny.yaml", "--json")
    assert json.loads(as_json.stdout) == {"wanted": 4, "ran": 0, "complete": True}


@pytest.mark.skipif(not (Path(__file__).parents[2] / ".git").exists(), reason="needs a checkout to compare with")
def test_cells_that_other_code_trained_are_told_and_left_alone(copied: Path, looprepro: Looprepro) -> None:
    """One of four says that a commit trained it which this checkout does not have."""
    file = next((copied / "runs" / "cells").glob("*diagonal*s0*/attempts/0001/provenance.json"))
    cell = file.parents[2].name
    for others, line in (({}, None), ({cell: "1" * 9}, "1 of 4 finished cells were trained by other code (111111111)")):
        if others:
            file.write_text(json.dumps(json.loads(file.read_text()) | {"commit": "1" * 40, "dirty_files": []}))
        plan = looprepro("plan", "./tiny.yaml")
        assert plan.returncode == 0, plan.stderr
        status = looprepro("status", "./tiny.yaml")
        for said in (plan.stdout, status.stdout):
            assert ("other code" in said) == bool(others)
            assert line is None or line in said
        assert json.loads(looprepro("plan", "./tiny.yaml", "--json").stdout)["other_code"] == others
        (sweep,) = json.loads(looprepro("status", "./tiny.yaml", "--json").stdout)["sweeps"]
        assert sweep["other_code"] == others
        assert "4 done, 0 to run" in plan.stdout


def test_collect_writes_rows_for_every_number(finished: Finished) -> None:
    folder, _, gathered = finished
    assert gathered.returncode == 0, gathered.stderr
    rows = parquet.read_table(folder / "results" / "smoke" / "results.parquet").to_pylist()
    assert gathered.stdout.splitlines()[0] == f"results/smoke/results.parquet: {len(rows)} rows; cells: 4 done"
    places = sorted((row["axis_method"], row["seed"], row["T"]) for row in rows if row["metric"] == "last_token_accuracy")
    assert places == [(method, seed, T) for method in ("G=2", "diagonal") for seed in (0, 1) for T in (3, 6)]
    assert all(row["items"] == 8 for row in rows if row["metric"] == "last_token_accuracy")


def test_a_table_in_every_format_has_the_same_numbers(finished: Finished, looprepro: Looprepro) -> None:
    results = str(finished[0] / "results")
    shown = {
        name: looprepro("table", "./tiny.yaml", "--results", results, "--format", name)
        for name in ("rich", "md", "latex", "csv", "json")
    }
    for name, done in shown.items():
        assert done.returncode == 0, (name, done.stderr)
        assert done.stdout.endswith("\n")
        assert "Traceback" not in done.stderr
    assert isinstance(json.loads(shown["json"].stdout), dict)
    rows = list(csv.DictReader(io.StringIO(shown["csv"].stdout)))
    assert [(row["method_role"], row["T_role"], row["n"]) for row in rows] == [
        ("diagonal", "T_max", "2"),
        ("diagonal", "2T_max", "2"),
        ("G=2", "T_max", "2"),
        ("G=2", "2T_max", "2"),
    ]
    for row in rows:
        assert shown["md"].stdout.count(row["text"]) == shown["rich"].stdout.count(row["text"]) >= 1
        assert f"{float(row['mean']):.3f}" in shown["latex"].stdout
    assert shown["md"].stdout.count("|") > 8
    assert "tabular" in shown["latex"].stdout
    assert "\x1b" not in shown["rich"].stdout  # a pipe is no terminal


def test_an_incomplete_table_says_so_and_ends_with_1(finished: Finished, looprepro: Looprepro) -> None:
    results = str(finished[0] / "results")
    done = looprepro("table", "./tiny.yaml", "--results", results, "--seeds", "0-2", "--format", "md")
    assert done.returncode == 1
    assert "|" in done.stdout
    assert "incomplete: looprepro status ./tiny.yaml --scale smoke" in done.stderr


def test_plot_prints_the_files_it_wrote(copied: Path, looprepro: Looprepro) -> None:
    done = looprepro("plot", "spectrum", "--sweep", "./tiny.yaml")
    assert done.returncode == 0, done.stderr
    files = [copied / line for line in done.stdout.splitlines()]
    assert [file.suffix for file in files] == [".png", ".pdf", ".csv"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert files[1].read_bytes().startswith(b"%PDF")


def test_another_metric_is_another_figure_and_an_unknown_one_names_those_there_are(copied: Path, looprepro: Looprepro) -> None:
    usual = looprepro("plot", "depth", "--sweep", "./tiny.yaml").stdout.splitlines()
    before = [(copied / file).read_bytes() for file in usual]
    other = looprepro("plot", "depth", "--sweep", "./tiny.yaml", "--metric", "mean_token_accuracy").stdout.splitlines()
    assert [Path(file).stem for file in other] == [f"{Path(file).stem}-mean_token_accuracy" for file in usual]
    assert [(copied / file).read_bytes() for file in usual] == before
    unknown = looprepro("plot", "depth", "--sweep", "./tiny.yaml", "--metric", "nonsense")
    assert unknown.returncode == 1
    assert "It has defect_blockwise, " in unknown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "./tiny.yaml"],
        ["plan", "./tiny.yaml", "--cells"],
        ["plan", "./tiny.yaml", "--json"],
        ["sweep", "./tiny.yaml", "--dry-run"],
        ["status", "./tiny.yaml"],
        ["status", "./tiny.yaml", "--json"],
        ["status", "--json"],
        ["list", "--json"],
        ["gc"],
        ["gc", "--json"],
    ],
    ids=" ".join,
)
def test_looking_writes_nothing(copied: Path, looprepro: Looprepro, arguments: list[str]) -> None:
    before = listing(copied)
    done = looprepro(*arguments)
    assert done.returncode == 0, done.stderr
    assert listing(copied) == before
    if "--json" in arguments:
        assert isinstance(json.loads(done.stdout), dict)


def test_looking_at_nothing_creates_nothing(here: Path, looprepro: Looprepro) -> None:
    before = listing(here)
    for command in ("plan", "status"):
        assert looprepro(command, "./tiny.yaml").returncode == 0
    assert looprepro("gc").returncode == 0
    assert listing(here) == before


def test_plan_gives_a_reason_for_each_cell(copied: Path, looprepro: Looprepro) -> None:
    lost = sorted((copied / "runs" / "cells").iterdir())[0]
    shutil.rmtree(lost)
    shutil.rmtree(copied / "results")
    document = json.loads(looprepro("plan", "./tiny.yaml", "--json").stdout)
    assert (document["wanted"], document["to_run"]) == (4, 1)
    reasons = {cell["id"]: (cell["action"], cell["reason"]) for cell in document["cells"]}
    assert reasons.pop(lost.name) == ("train", "no attempt yet")
    assert set(reasons.values()) == {("none", "done")}


def test_a_cell_of_which_only_collected_rows_are_left_counts_as_done(copied: Path, looprepro: Looprepro) -> None:
    shutil.rmtree(copied / "runs")
    document = json.loads(looprepro("plan", "./tiny.yaml", "--json").stdout)
    assert {(cell["action"], cell["reason"]) for cell in document["cells"]} == {("none", "done (archived rows)")}


def test_status_counts_cells_and_names_what_is_missing(finished: Finished, looprepro: Looprepro) -> None:
    runs = str(finished[0] / "runs")
    document = json.loads(looprepro("status", "./tiny.yaml", "--runs", runs, "--seeds", "0-2", "--json").stdout)
    (sweep,) = document["sweeps"]
    assert (sweep["sweep"], sweep["wanted"], sweep["complete"]) == ("tiny", 6, 4)
    assert sweep["status"] == {"done": 4, "planned": 2}
    assert sorted(missing["status"] for missing in sweep["missing"]) == ["planned", "planned"]
    assert all(missing["id"].rsplit("-", 2)[1] == "s2" for missing in sweep["missing"])


def test_gc_frees_nothing_unless_told(copied: Path, looprepro: Looprepro) -> None:
    cell = sorted((copied / "runs" / "cells").iterdir())[0]
    (weights,) = cell.glob("attempts/0001/checkpoint-*")
    older = weights.with_name("checkpoint-00000004")
    shutil.copytree(weights, older)
    before = listing(copied)
    done = looprepro("gc")
    assert done.returncode == 0
    assert "checkpoint of a finished cell, not its weights" in done.stdout
    assert done.stderr == "nothing was freed: add --yes\n"
    assert listing(copied) == before
    freed = looprepro("gc", "--yes")
    assert freed.stderr.startswith("freed ")
    assert not older.exists()
    assert weights.is_dir()
    assert json.loads(looprepro("gc", "--json").stdout) == {"bytes": 0, "items": []}


def test_a_cell_printed_by_plan_can_be_trained_by_itself(finished: Finished, here: Path, looprepro: Looprepro) -> None:
    wanted = sorted((finished[0] / "runs" / "cells").iterdir())[0]
    printed = looprepro("plan", "./tiny.yaml", "--cell", wanted.name)
    assert printed.returncode == 0
    assert yaml.safe_load(printed.stdout)["training"]["steps"] == 8
    (here / "cell.yaml").write_text(printed.stdout)
    held = Store(here / "runs").claim(wanted.name)
    assert held is not None
    assert looprepro("train", "cell.yaml").returncode == 1, "another process is at it, so nothing is done here"
    held.end("interrupted")
    trained = looprepro("train", "cell.yaml")
    assert trained.returncode == 0, trained.stderr
    assert f"cell {wanted.name}" in trained.stderr
    assert trained.stderr.splitlines()[-1] == "done"
    for budget in ("T=3", "T=6"):
        assert f"{budget}  last_token_accuracy  " in trained.stdout
    # The same cell in the sweep and by itself: the same numbers.
    for file in (wanted / "evaluations").iterdir():
        ours = json.loads((here / "runs" / "cells" / wanted.name / "evaluations" / file.name).read_text())
        assert ours["metrics"] == json.loads(file.read_text())["metrics"]


def test_a_wrong_cell_file_names_line_and_key(finished: Finished, here: Path, looprepro: Looprepro) -> None:
    wanted = sorted((finished[0] / "runs" / "cells").iterdir())[0]
    text = looprepro("plan", "./tiny.yaml", "--cell", wanted.name).stdout
    (here / "cell.yaml").write_text(text.replace("warmup: 4", "warmup: soon"))
    line = text[: text.index("warmup: 4")].count("\n") + 1
    done = looprepro("train", "cell.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: cell.yaml:{line}: training.warmup: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "runs").exists()


def test_no_color_and_pipes_get_plain_text(looprepro: Looprepro) -> None:
    for arguments in (["--help"], ["sweep", "--help"], ["list"]):
        done = looprepro(*arguments, NO_COLOR="1", TERM="xterm-256color")
        assert done.returncode == 0
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [("plan", "table1", "--cells", "--scale", "paper"), ("list",), ("--help",)], ids=lambda c: c[0]
)
def test_a_reader_that_leaves_is_no_error(here: Path, start: Start, command: tuple[str, ...]) -> None:
    process = start(*command)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_environment_variables_choose_the_folders(finished: Finished, here: Path, looprepro: Looprepro) -> None:
    done = looprepro("status", "./tiny.yaml", "--json", LOOPREPRO_RUNS=str(finished[0] / "runs"))
    assert json.loads(done.stdout)["sweeps"][0]["complete"] == 4


def test_two_sweeps_at_once_run_each_cell_once(here: Path, start: Start) -> None:
    both = [start("sweep", "./tiny.yaml", "--jobs", "1") for _ in range(2)]
    for process in both:
        _, talk = process.communicate(timeout=120)
        assert process.returncode == 0, talk
    assert sorted(attempts(here).values()) == [1, 1, 1, 1]
    assert ended(here) == {"done"}
    assert len(list(here.glob("runs/cells/*/evaluations/*.json"))) == 8


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def owners(folder: Path) -> set[int]:
    """Processes that hold a cell that they have not ended, and have trained a step."""
    return {
        json.loads((attempt / "owner.json").read_text())["pid"]
        for attempt in folder.glob("runs/cells/*/attempts/????")
        if (attempt / "metrics.jsonl").exists() and not (attempt / "end.json").exists()
    }


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_launcher_and_an_interrupted_one_lose_nothing(here: Path, start: Start, looprepro: Looprepro) -> None:
    file = here / "tiny.yaml"
    file.write_text(file.read_text().replace("steps: 8", "steps: 1200").replace("seeds: 0-1", "seeds: 0"))
    first = start("sweep", "./tiny.yaml", "--only", "method=diagonal")
    wait_until(lambda: bool(owners(here)))
    workers = owners(here)
    first.kill()
    first.communicate()
    wait_until(lambda: not any(map(alive, workers)), 30)  # a worker that misses its launcher checkpoints and leaves
    assert ended(here) == {"interrupted"}
    assert len(list(here.glob("runs/cells/*/attempts/0001/checkpoint-*"))) == 1
    second = start("sweep", "./tiny.yaml", "--only", "method=diagonal")
    wait_until(lambda: bool(owners(here)))
    second.send_signal(signal.SIGINT)
    _, talk = second.communicate(timeout=60)
    assert second.returncode == 130, talk
    assert "Traceback" not in talk
    assert not any(map(alive, owners(here)))
    third = looprepro("sweep", "./tiny.yaml", "--only", "method=diagonal")
    assert third.returncode == 0, third.stderr
    (path,) = here.glob("runs/cells/*/result.json")
    result = json.loads(path.read_text())
    assert (result["status"], result["step"], result["resumed"]) == ("done", 1200, 2)


def test_a_killed_worker_is_replaced(here: Path, start: Start) -> None:
    file = here / "tiny.yaml"
    file.write_text(file.read_text().replace("steps: 8", "steps: 300").replace("seeds: 0-1", "seeds: 0"))
    launcher = start("sweep", "./tiny.yaml", "--jobs", "1")
    wait_until(lambda: bool(owners(here)))
    (worker,) = owners(here)
    os.kill(worker, signal.SIGKILL)
    _, talk = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, talk
    assert f"(process {worker}) was killed by SIGKILL" in talk
    assert sorted(attempts(here).values()) == [1, 2]
