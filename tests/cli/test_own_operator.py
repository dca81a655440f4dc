"""docs/own-operator.md, word for word: its class and its row go through sweep, collect, table and spectrum."""

from __future__ import annotations

import csv
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from looprepro.planning import stated_numbers
from looprepro.planning.claims import claimed_papers, load_claims

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own-operator.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    return found[0]


def write_example(folder: Path) -> None:
    (folder / "twist.py").write_text(block("python"), encoding="utf-8")
    sweep = (ROOT / "sweeps" / "table1.yaml").read_text(encoding="utf-8")
    sweep = sweep.replace("name: table1", "name: twist_table")
    first = "    - {role: diagonal, set: {model.injection.method: diagonal}}\n"
    assert first in sweep
    sweep = sweep.replace(first, first + block("yaml"))
    short = sweep.replace("method: [diagonal, G=1, G=2, G=4, d/2]", "method: [diagonal, twist]\n      group: [A5]")
    assert short != sweep
    (folder / "twist_table.yaml").write_text(short.replace("steps: 60", "steps: 4"), encoding="utf-8")


def looprepro(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "looprepro", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_example_of_the_page_goes_all_the_way(tmp_path: Path) -> None:
    write_example(tmp_path)
    for line in block("sh").strip().splitlines():
        done = looprepro(tmp_path, *line.split()[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if "table" in line.split()[1]:
            assert re.search(r"twist +0\.\d{3} ± ", done.stdout), done.stdout
    with open(tmp_path / "results/smoke/figures/spectrum-twist_table.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "twist"]
    moduli = [abs(complex(float(row["re"]), float(row["im"]))) for row in rows]
    assert len(rows) == 16
    assert max(moduli) == pytest.approx(min(moduli)), "one rate: one circle"


def test_an_edit_of_the_file_is_another_cell(tmp_path: Path) -> None:
    write_example(tmp_path)
    before = looprepro(tmp_path, "plan", "twist_table.yaml", "--scale", "smoke", "--only", "method=twist", "--json").stdout
    (tmp_path / "twist.py").write_text(block("python") + "\n# another rate\n", encoding="utf-8")
    after = looprepro(tmp_path, "plan", "twist_table.yaml", "--scale", "smoke", "--only", "method=twist", "--json").stdout
    names = [set(re.findall(r'"(a5-[^"]+)"', text)) for text in (before, after)]
    assert names[0]
    assert not names[0] & names[1]


def test_every_command_finds_the_class_in_the_working_folder(tmp_path: Path) -> None:
    write_example(tmp_path)
    only = ("twist_table.yaml", "--scale", "smoke", "--only", "method=twist", "--seeds", "0")
    assert looprepro(tmp_path, "sweep", *only, "--executor", "inline").returncode == 0
    cell = next(path.name for path in (tmp_path / "runs" / "cells").iterdir())
    for command in (("geometry", cell), ("eval", cell, "T=3")):
        done = looprepro(tmp_path, *command)
        assert done.returncode == 0, done.stderr
    (tmp_path / "cell.yaml").write_text(looprepro(tmp_path, "plan", *only, "--cell", cell).stdout, encoding="utf-8")
    trained = looprepro(tmp_path, "train", "cell.yaml", "--runs", "others")
    assert (trained.returncode, trained.stderr.splitlines()[-1]) == (0, "done"), trained.stderr


def indented(first: str) -> str:
    """The indented example of the page that begins with the line ``first``."""
    lines = PAGE.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() == first and line.startswith("      "))
    rest = itertools.takewhile(lambda line: line.startswith("      "), lines[start:])
    return "".join(f"{line[6:]}\n" for line in rest)


def test_the_pages_own_numbers_and_claims_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(indented("twist_table:"), encoding="utf-8")
    (number,) = stated_numbers("mine", tmp_path)["twist_table"]
    assert (number.row, number.column, number.value) == ("twist", {"group": "A5", "T": "T_max"}, 0.9)
    for name in ("mine", "fixed_point_reasoners", "rotate_the_loop"):
        (tmp_path / f"{name}.yaml").write_text(indented("claims:"), encoding="utf-8")
    assert claimed_papers(tmp_path) == ["rotate_the_loop", "fixed_point_reasoners", "mine"]
    (claim,) = load_claims("mine", tmp_path)
    assert (claim.id, claim.parts[0].kind) == ("M1", "greater")
