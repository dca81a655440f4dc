"""A fresh clone has results/<scale>/'s three data files and no runs/: ``make tables`` makes everything else from them again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from looprepro.analysis.cells import CELLS, read_cells
from looprepro.analysis.results import RESULTS, SERIES_FILE, load_results
from looprepro.cli.main import app
from looprepro.config.identity import digest
from looprepro.planning import available_sweeps, expand, load_sweep

ROOT = Path(__file__).parents[2]
COMMITTED = sorted(path.parent.name for path in (ROOT / "results").glob(f"*/{RESULTS}") if path.parent.name == "mini")
"""Scales whose results are in the repository; smoke and paper are ignored by git."""
DATA = (RESULTS, SERIES_FILE, CELLS)
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def run(*arguments: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (arguments, done.output, done.exception)


def files(folder: Path) -> dict[str, bytes]:
    """Everything below ``folder`` by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def clone(source: Path, target: Path) -> None:
    """What git keeps of a study, as far as it is not made from the rest."""
    target.mkdir(parents=True)
    for name in DATA:
        shutil.copy(source / name, target / name)


def numbers_of(page: bytes) -> str:
    """Without the copy of docs/assumptions.md at its end, which may have grown since, and without pictures."""
    return without_pictures(page).split('<h2 id="assumptions">')[0]


def without_pictures(page: bytes) -> str:
    return re.sub(r'src="data:image/png;base64,[^"]*"', "", page.decode())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real cells of Table 1 at smoke, run and collected: an incomplete table, and verdicts."""
    folder = tmp_path_factory.mktemp("study")
    where = ("--scale", "smoke", "--runs", str(folder / "runs"), "--results", str(folder / "results"))
    run("sweep", "table1", "--only", "group=A5", "--only", "method=diagonal", "--jobs", "1", *where)
    run("collect", *where)
    run("claims", *where[:2], *where[4:])
    return folder


@pytest.mark.xdist_group("regenerate")
def test_tables_and_verdicts_come_out_of_the_data_byte_for_byte(study: Path, tmp_path: Path) -> None:
    clone(study / "results" / "smoke", tmp_path / "results" / "smoke")
    where = ("--scale", "smoke", "--results", str(tmp_path / "results"))
    run("collect", *where, "--runs", str(tmp_path / "runs"))
    run("claims", *where)
    made = files(tmp_path / "results" / "smoke")
    before = files(study / "results" / "smoke")
    assert {*DATA, "claims.json", "tables/table1.tex", "tables/table1.csv"} <= set(made)
    assert made == {name: content for name, content in before.items() if name in made}


@pytest.mark.slow
@pytest.mark.xdist_group("regenerate")
def test_make_tables_in_a_clone_makes_everything_again(study: Path, tmp_path: Path) -> None:
    """With the real target; pictures are compared by the csv that they are drawn from."""
    whole = tmp_path / "whole"
    shutil.copytree(study / "results", whole)
    run("report", "--scale", "smoke", "--results", str(whole))
    clone(whole / "smoke", tmp_path / "results" / "smoke")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPREPRO", "MAKE"))}
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.installed", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(
        [*command, "SCALE=smoke", "tables"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "incomplete: table1 (looprepro status --scale smoke)" in done.stderr
    before, after = files(whole / "smoke"), files(tmp_path / "results" / "smoke")
    assert set(after) == set(before)
    assert {"claims.json", "tables/table1.tex", "figures/spectrum.csv", "report.html"} <= set(after)
    pictures = {name for name in after if name.endswith((".png", ".pdf"))}
    for name in set(after) - {*pictures, "report.html"}:
        assert after[name] == before[name], name
    assert without_pictures(after["report.html"]) == without_pictures(before["report.html"])
    assert all(after[name] for name in pictures)


@pytest.mark.xdist_group("regenerate")
def test_missing_numbers_are_a_reason_for_exit_code_1_only_where_nothing_else_was_said(study: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(study / "runs", runs)
    next(runs.glob("cells/*/evaluations/*.json")).unlink()
    where = ("--scale", "smoke", "--runs", str(runs), "--results", str(tmp_path / "results"))
    plain = CliRunner().invoke(app, ["collect", *where])
    partial = CliRunner().invoke(app, ["collect", "--partial", *where])
    assert (plain.exit_code, partial.exit_code) == (1, 0)
    assert re.search(r"^missing: a5-diagonal-\S+/T\d-", partial.stderr, re.MULTILINE)
    damaged = next(runs.glob("cells/*/evaluations/*.json"))
    damaged.write_text("{", encoding="utf-8")
    assert CliRunner().invoke(app, ["collect", "--partial", *where]).exit_code == 1


@pytest.mark.xdist_group("regenerate")
def test_plot_without_a_name_draws_what_it_can_and_says_the_rest(study: Path, tmp_path: Path) -> None:
    clone(study / "results" / "smoke", tmp_path / "smoke")
    done = CliRunner().invoke(app, ["plot", "--scale", "smoke", "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    drawn = [Path(line) for line in done.stdout.splitlines()]
    assert all(path.is_file() for path in drawn)
    stems = {path.stem for path in drawn}
    assert {"spectrum", "curves", "depth"} <= stems
    undrawn = {line.split(":")[1].strip() for line in done.stderr.splitlines() if line.startswith("not drawn: ")}
    assert stems | undrawn == {"gram", "spectrum", "groups", "depth", "positions", "curves", "defect"}
    assert not stems & undrawn


@pytest.mark.xdist_group("regenerate")
def test_the_way_back_from_a_number_is_the_one_of_the_page(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snippet of docs/mini-study.md, run on a study at smoke."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "mini-study.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a snippet may leave a file to the garbage collector
        exec(compile(snippet.replace("results/mini", "results/smoke"), "docs/mini-study.md", "exec"), {})
    value, seed, commit, *_, checksum = capsys.readouterr().out.split()
    rows = load_results(study / "results", "smoke").rows
    row = next(row for row in rows if "value" in row)
    assert (float(value), int(seed), commit) == (row["value"], row["seed"], row["commit"])
    logs = {hashlib.sha256(log.read_bytes()).hexdigest() for log in study.glob("runs/cells/*/attempts/*/log.txt")}
    assert checksum in logs


def apart(ours: str, theirs: str) -> str:
    """Where two texts differ, numbers aside that differ in their last digits only (another processor); "" where nowhere."""
    for number, (one, other) in enumerate(zip(ours.splitlines(), theirs.splitlines(), strict=False), 1):
        if one == other:
            continue
        if NUMBER.sub("#", one) != NUMBER.sub("#", other):
            return f"line {number}: {one!r} is {other!r}"
        for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
            if abs(float(a) - float(b)) > 1e-9 * max(1.0, abs(float(a))):
                return f"line {number}: {a} is {b}"
    return "" if ours.count("\n") == theirs.count("\n") else "one is longer"


def test_what_apart_calls_different() -> None:
    assert apart("a 0.1234567890123\n", "a 0.1234567890124\n") == ""
    assert apart("a 0.123\n", "a 0.124\n") == "line 1: 0.123 is 0.124"
    assert apart("a 0.123\n", "b 0.123\n").startswith("line 1: ")
    assert apart("a\n", "a\nb\n") == "one is longer"


@pytest.mark.parametrize("scale", COMMITTED)
def test_the_committed_tables_and_verdicts_are_made_from_the_committed_data(scale: str, tmp_path: Path) -> None:
    """If this fails after a change of a sweep's texts or of a rendering: make tables SCALE=<scale>, and commit."""
    committed = ROOT / "results" / scale
    clone(committed, tmp_path / "results" / scale)
    where = ("--scale", scale, "--results", str(tmp_path / "results"))
    run("collect", *where, "--runs", str(tmp_path / "runs"))
    run("claims", *where)
    ours = tmp_path / "results" / scale
    for name in DATA:
        assert (ours / name).read_bytes() == (committed / name).read_bytes(), name
    tables = {path.name for path in (committed / "tables").iterdir()}
    assert {path.name for path in (ours / "tables").iterdir()} == tables
    for name in ("claims.json", *(f"tables/{table}" for table in sorted(tables))):
        difference = apart((committed / name).read_text(encoding="utf-8"), (ours / name).read_text(encoding="utf-8"))
        assert not difference, f"{name}: {difference}"


@pytest.mark.slow
@pytest.mark.parametrize("scale", COMMITTED)
def test_the_committed_figures_and_report_are_made_from_the_committed_data(scale: str, tmp_path: Path) -> None:
    committed, ours = ROOT / "results" / scale, tmp_path / scale
    clone(committed, ours)
    run("report", "--scale", scale, "--results", str(tmp_path))
    drawn = {path.name for path in (committed / "figures").iterdir()}
    assert {path.name for path in (ours / "figures").iterdir()} == drawn
    for name in sorted(drawn):
        if name.endswith(".csv"):
            there, here = ((folder / "figures" / name).read_text(encoding="utf-8") for folder in (committed, ours))
            assert not apart(there, here), f"{name}: {apart(there, here)}"
    there, here = (numbers_of((folder / "report.html").read_bytes()) for folder in (committed, ours))
    assert not apart(there, here), apart(there, here)


@pytest.mark.parametrize("scale", COMMITTED)
def test_every_committed_number_belongs_to_the_scale_and_to_a_cell_that_is_wanted(scale: str) -> None:
    rows = load_results(ROOT / "results", scale).rows
    assert {row["scale"] for row in rows} == {scale}
    wanted = {
        name: {planned.id for planned in expand(load_sweep(name), scale).cells}
        for name in {row["sweep"] for row in rows} & set(available_sweeps())
    }
    foreign = {(row["sweep"], row["cell"]) for row in rows if not row["overrides"] and row["cell"] not in wanted[row["sweep"]]}
    assert foreign == set(), "cells that no sweep of today wants at this scale"


@pytest.mark.parametrize("scale", COMMITTED)
def test_pilots_have_seeds_of_their_own_and_words_are_set_on_the_diagonal_alone(scale: str) -> None:
    pilots = load_results(ROOT / "results" / "pilots", scale).rows
    assert min(row["seed"] for row in pilots) >= 100 > max(row["seed"] for row in load_results(ROOT / "results", scale).rows)
    assert {row["injection"] for row in pilots if row["sweep"] == "table1"} == {"diagonal"}


@pytest.mark.parametrize("folder", [ROOT / "results", ROOT / "results" / "pilots"], ids=["study", "pilots"])
@pytest.mark.parametrize("scale", COMMITTED)
def test_every_committed_number_traces_to_a_configuration_a_commit_and_a_log(scale: str, folder: Path) -> None:
    results = load_results(folder, scale)
    kept = read_cells(folder / scale)
    assert set(kept.cell) == {row["cell"] for row in results.rows}
    for id, line in kept.cell.items():
        assert id.endswith(f"-{digest(line['config'])}"), "the configuration that the id is a hash of, as it was then"
        assert {attempt["environment"] for attempt in line["attempts"]} <= set(kept.environment)
    for row in results.rows:
        line = kept.cell[row["cell"]]
        assert row["seed"] == line["config"]["seed"]
        assert "value" not in row or row["evaluation"] in kept.evaluation
        assert next(one["log"]["sha256"] for one in line["attempts"] if one["attempt"] == row["attempt"])
        attempts = {attempt["attempt"]: kept.environment[attempt["environment"]]["provenance"] for attempt in line["attempts"]}
        assert row["commit"] in {where["commit"] for where in attempts.values()}
        assert row["device"] in {where["device"] for where in attempts.values()}
        assert json.loads(row["versions"])["torch"]
    assert set(results.series_table["cell"].unique().to_pylist()) <= set(kept.cell)


@pytest.mark.parametrize("scale", COMMITTED)
def test_the_committed_study_is_small(scale: str) -> None:
    assert sum(len(content) for content in files(ROOT / "results" / scale).values()) < 20e6
