"""The code that is submitted: what is copied, and how it is recognised."""

from __future__ import annotations

from pathlib import Path

import pytest

import looprepro
from looprepro.launch.source_snapshot import Source, read_source
from looprepro.store.provenance import snapshot_state

PACKAGE = Path(looprepro.__file__).resolve().parent


def test_the_hash_changes_with_any_content_and_any_name() -> None:
    hashes = {Source(files, {}, "").hash for files in ({"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""})}
    assert len(hashes) == 4
    assert Source({"a": b"1"}, {"commit": "x"}, "diff").hash == Source({"a": b"1"}, {}, "").hash


def test_the_whole_package_is_copied_and_no_compiled_file() -> None:
    files = read_source().files
    wanted = {f"looprepro/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*.py")}
    assert wanted <= set(files)
    assert not [path for path in files if "__pycache__" in path]


def test_a_written_source_tells_its_commit_changes_and_hash(tmp_path: Path) -> None:
    source = Source({"looprepro/x.py": b"1"}, {"commit": "c0ffee", "dirty": True, "dirty_files": ["x"], "git": ""}, "--- a\n")
    folder = tmp_path / "source"
    folder.mkdir()
    source.write(folder)
    state = snapshot_state(folder)
    assert state == (
        {"commit": "c0ffee", "dirty": True, "dirty_files": ["x"], "git": "", "source": source.hash},
        "--- a\n",
    )
    assert snapshot_state(tmp_path) is None


def test_a_users_own_operator_is_copied_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    for name in ("__init__.py", "helper.py", "deep/__init__.py", "deep/operator.py"):
        (tmp_path / "mine" / name).write_text("class Own: ...\n")
    (tmp_path / "single.py").write_text("class Own: ...\n")
    monkeypatch.chdir(tmp_path)
    plain = set(read_source().files)
    copied = set(read_source(["mine.deep.operator:Own", "single:Own"]).files) - plain
    assert copied == {"mine/__init__.py", "mine/helper.py", "mine/deep/__init__.py", "mine/deep/operator.py", "single.py"}
