"""A collected cell trained again comes out the same to the last bit, and where it does not, that is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
import typer

from looprepro.cli.repeat import repeat
from looprepro.files.errors import StoreError

Looprepro = Callable[..., Any]


def cells(here: Path) -> list[str]:
    rows = parquet.read_table(here / "results" / "smoke" / "results.parquet").to_pylist()
    return sorted({row["cell"] for row in rows})


def test_a_collected_cell_comes_out_the_same_without_its_runs(looprepro: Looprepro, here: Path) -> None:
    assert looprepro("sweep", "./tiny.yaml", "--seeds", "0").returncode == 0
    assert looprepro("collect").returncode == 0
    (here / "runs").rename(here / "elsewhere")
    before = {path: path.read_bytes() for path in here.rglob("results/**/*") if path.is_file()}
    name = cells(here)[0]
    done = looprepro("repeat", name)
    assert done.returncode == 0, done.stderr
    assert f"{name}: " in done.stdout
    assert "numbers and curves are the same, bit for bit" in done.stdout
    document = json.loads(looprepro("repeat", "--keep", "again", "--json").stdout)  # one drawn at random
    assert document["cell"] in cells(here)
    assert (document["different"], document["environment"]) == ([], {})
    assert document["equal"] > 10
    assert (here / "again" / "cells" / document["cell"]).is_dir()
    assert not (here / "runs").exists()
    assert before == {path: path.read_bytes() for path in before}

    refused = looprepro("repeat", "--keep", "again")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "again is not empty" in refused.stderr
    unknown = looprepro("repeat", "x" + name)
    assert (unknown.returncode, "Did you mean" in unknown.stderr) == (2, True)


def test_another_number_is_named_and_another_processor_too(looprepro: Looprepro, here: Path) -> None:
    assert looprepro("sweep", "./tiny.yaml", "--seeds", "0", "--only", "method=diagonal").returncode == 0
    assert looprepro("collect", "--partial").returncode == 0
    folder = here / "results" / "smoke"
    table = parquet.read_table(folder / "results.parquet")
    changed = pc.if_else(pc.equal(table["metric"], "loss"), pc.add(table["value"], 1e-12), table["value"])
    place = table.schema.get_field_index("value")
    parquet.write_table(table.set_column(place, pyarrow.field("value", pyarrow.float64()), changed), folder / "results.parquet")
    text = (folder / "cells.jsonl").read_text()
    (cpu,) = {json.loads(line)["provenance"]["cpu"] for line in text.splitlines() if "provenance" in line}
    (folder / "cells.jsonl").write_text(text.replace(json.dumps(cpu), json.dumps("An Older One")))
    done = looprepro("repeat")
    assert done.returncode == 1
    assert "loss: " in done.stdout
    assert "was collected" in done.stdout
    assert f"other cpu: An Older One then, {cpu} here" in done.stdout


def test_a_cell_of_a_stack_is_repeated_with_the_others(looprepro: Looprepro, here: Path) -> None:
    assert looprepro("sweep", "./tiny.yaml", "--pack", "seeds", "--only", "method=G=2").returncode == 0
    assert looprepro("collect", "--partial").returncode == 0
    done = looprepro("repeat", cells(here)[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with the 1 others of its stack" in done.stderr


@pytest.mark.parametrize(("code", "error"), [(1, StoreError), (130, typer.Exit)])
def test_a_repetition_that_does_not_finish_is_no_difference(
    looprepro: Looprepro, here: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    assert looprepro("sweep", "./tiny.yaml", "--seeds", "0", "--only", "method=diagonal").returncode == 0
    assert looprepro("collect", "--partial").returncode == 0
    monkeypatch.setattr("looprepro.cli.repeat._run", lambda store, cells: code)
    with pytest.raises(error) as caught:
        repeat(None, None, here / "results", None, False)
    assert code == 130 or "did not finish (planned)" in str(caught.value)


def test_without_results_there_is_nothing_to_repeat(looprepro: Looprepro) -> None:
    done = looprepro("repeat")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: " in done.stderr


def test_a_cell_that_diverged_diverges_again(looprepro: Looprepro, here: Path) -> None:
    asked = ("./tiny.yaml", "--seeds", "0", "--only", "method=diagonal", "training.lr=1e30", "training.clip=1e30")
    assert looprepro("sweep", *asked).returncode == 0, "diverged is a result"
    assert looprepro("collect", "--partial").returncode == 0
    done = looprepro("repeat")
    assert done.returncode == 0, done.stderr + done.stdout
    assert re.search(r"\b([1-9]\d*) of \1 numbers and curves are the same, bit for bit", done.stdout), "its cause at least"
