"""A number can be traced: commit, every uncommitted change, versions; and no secret."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from looprepro.store.provenance import cpu_model, cpu_numbers, provenance, source_state, versions


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "looprepro").mkdir(parents=True)
    (folder / "looprepro" / "a.py").write_text("x = 1\n")
    (folder / "notes.md").write_text("n\n")
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    return folder


def test_a_clean_checkout_has_a_commit_and_no_diff(checkout: Path) -> None:
    (checkout / "notes.md").write_text("changed, but no number depends on it\n")
    record, diff = source_state(checkout)
    assert record == {"commit": _git(checkout, "rev-parse", "HEAD"), "dirty": False, "dirty_files": [], "git": ""}
    assert diff == ""


def test_the_diff_of_a_dirty_checkout_rebuilds_it_untracked_files_included(checkout: Path, tmp_path: Path) -> None:
    (checkout / "looprepro" / "a.py").write_text("x = 2\n")
    (checkout / "looprepro" / "new ü.py").write_text("y = 3\n")
    record, diff = source_state(checkout)
    assert record["dirty"] is True
    assert record["dirty_files"] == ["looprepro/a.py", "looprepro/new ü.py"]
    clone = tmp_path / "clone"
    _git(tmp_path, "clone", "-q", str(checkout), str(clone))
    (tmp_path / "changes.diff").write_text(diff)
    _git(clone, "apply", str(tmp_path / "changes.diff"))
    assert (clone / "looprepro" / "a.py").read_text() == "x = 2\n"
    assert (clone / "looprepro" / "new ü.py").read_text() == "y = 3\n"


def test_a_checkout_without_commits_is_dirty_with_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "looprepro").mkdir()
    (tmp_path / "looprepro" / "a.py").write_text("x = 1\n")
    _git(tmp_path, "init", "-q")
    record, diff = source_state(tmp_path)
    assert (record["commit"], record["dirty"], record["dirty_files"]) == (None, True, ["looprepro/a.py"])
    assert "+x = 1" in diff


def test_a_package_inside_somebody_elses_repository_claims_no_commit(checkout: Path) -> None:
    inner = checkout / "venv"
    (inner / "looprepro").mkdir(parents=True)
    record, diff = source_state(inner)
    assert (record["commit"], record["dirty"], diff) == (None, None, "")
    assert record["git"] == "not in a checkout of its own"


def test_versions_are_the_installed_ones() -> None:
    assert versions()["torch"] == metadata.version("torch")


def test_no_environment_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret-in-the-environment")
    files = provenance(threads=1).contents()
    assert json.loads(files["provenance.json"])["threads"] == 1
    assert b"s3cret-in-the-environment" not in files["provenance.json"]


def test_processors_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 9\n"
    )
    monkeypatch.setattr(sys, "platform", "linux")
    found = []
    for model in (1, 2):
        monkeypatch.setattr(Path, "read_text", lambda *_, model=model, **__: text.format(model))
        found.append((cpu_model(), cpu_numbers()))
    assert found == [("AMD EPYC", f"vendor_id AuthenticAMD, family 26, model {model}") for model in (1, 2)]
