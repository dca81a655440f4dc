"""Which cells other code trained: by commit, in a checkout of its own, no further than files that can change a number."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from looprepro.store.code import MATTERS, made_by_other_code
from looprepro.store.layout import Layout
from looprepro.store.provenance import source_state


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for room in ("training", "cli"):
        (folder / "looprepro" / room).mkdir(parents=True)
        (folder / "looprepro" / room / "a.py").write_text("x = 1\n")
    _git(folder, "init", "-q")
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "more")
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "runs")


def trained(layout: Layout, cell: str, state: dict[str, Any], diff: str = "") -> None:
    """The files of a finished cell that say which code it was trained by."""
    attempt = layout.attempts(cell) / "0001"
    attempt.mkdir(parents=True)
    (layout.cell(cell) / "result.json").write_text(json.dumps({"schema": 1, "attempt": 1, "status": "done"}))
    (attempt / "provenance.json").write_text(json.dumps({"schema": 1} | state))
    if diff:
        (attempt / "changes.diff").write_text(diff)


def test_a_cell_is_of_other_code_once_a_file_that_matters_changed(checkout: Path, layout: Layout) -> None:
    trained(layout, "cell", *source_state(checkout))
    assert made_by_other_code(layout, ["cell"], checkout) == {}
    (checkout / "looprepro" / "cli" / "a.py").write_text("x = 2\n")
    commit(checkout)
    assert made_by_other_code(layout, ["cell"], checkout) == {}, "the command line changes no number"
    (checkout / "looprepro" / "training" / "a.py").write_text("x = 2\n")
    (other,) = made_by_other_code(layout, ["cell"], checkout).values()
    assert str(other) == _git(checkout, "rev-parse", "HEAD~1")[:9]
    commit(checkout)
    trained(layout, "later", *source_state(checkout))
    assert made_by_other_code(layout, ["cell", "later"], checkout).keys() == {"cell"}
    (checkout / "looprepro" / "training" / "a.py").write_text("x = 1\n")
    assert made_by_other_code(layout, ["cell", "later"], checkout).keys() == {"later"}, "what counts is the content"


def test_a_modified_tree_is_the_present_code_as_long_as_its_changes_are(checkout: Path, layout: Layout) -> None:
    (checkout / "looprepro" / "training" / "a.py").write_text("x = 3\n")
    trained(layout, "cell", *source_state(checkout))
    assert made_by_other_code(layout, ["cell"], checkout) == {}
    (checkout / "looprepro" / "cli" / "a.py").write_text("x = 3\n")
    assert made_by_other_code(layout, ["cell"], checkout) == {}
    (checkout / "looprepro" / "training" / "a.py").write_text("x = 4\n")
    (other,) = made_by_other_code(layout, ["cell"], checkout).values()
    assert str(other).endswith(" with changes")


def test_what_is_not_known_is_not_claimed(checkout: Path, layout: Layout, tmp_path: Path) -> None:
    """No commit, no folder, no result, no checkout; a commit that is not here is other code."""
    trained(layout, "wheel", {"commit": None, "dirty": None})
    trained(layout, "option", {"commit": "--output=x", "dirty": False})
    trained(layout, "elsewhere", {"commit": "1" * 40, "dirty": False})
    layout.cell("begun").mkdir(parents=True)
    ids = ["wheel", "option", "elsewhere", "begun", "absent"]
    assert made_by_other_code(layout, ids, checkout).keys() == {"elsewhere"}
    assert made_by_other_code(layout, ids, tmp_path) == {}


def test_git_is_asked_once_for_each_commit(checkout: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    from looprepro.store import code

    state, _ = source_state(checkout)
    for number in range(500):
        trained(layout, f"cell{number}", state)
    asked = []
    plain = code.git
    monkeypatch.setattr(code, "git", lambda *arguments: asked.append(arguments) or plain(*arguments))
    began = time.process_time()
    assert made_by_other_code(layout, [f"cell{number}" for number in range(500)], checkout) == {}
    assert time.process_time() - began < 0.5
    assert len(asked) == 1


def test_every_place_that_matters_exists() -> None:
    assert all((Path(__file__).parents[2] / name).exists() for name in MATTERS)
