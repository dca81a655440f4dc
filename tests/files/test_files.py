"""Files appear whole or not at all; what cannot be read or written is said with its place and a remedy."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from looprepro.files.atomic import create_exclusive, create_folder_with, write_bytes, write_text, write_with
from looprepro.files.checksum import sha256_bytes, sha256_file
from looprepro.files.errors import ConfigError, IdentityCollision, LoopreproError, SchedulerUnreachable, StoreError
from looprepro.files.json_files import canonical_json, pretty_json, read_json, write_json
from looprepro.files.yaml_files import read_yaml


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_write_replaces_the_content_and_leaves_no_temporary(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "one\r\n", durable=durable)
    write_text(path, "zwei ü\n", durable=durable)
    assert path.read_bytes() == "zwei ü\n".encode()
    assert names(path.parent) == ["a.txt"]


def test_a_writer_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fails(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_with(path, fails)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "The disk is full: free space"),
        (errno.EDQUOT, "The quota is used up"),
        (errno.EACCES, "Make the folder writable"),
        (errno.EROFS, "The file system is read-only"),
        (errno.EIO, "Check the path"),
    ],
)
def test_what_the_system_refuses_is_said_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("looprepro.files.atomic.os.fsync", refuse)
    for write in (lambda: write_bytes(path, b"new"), lambda: create_exclusive(tmp_path / "b.txt", b"new")):
        with pytest.raises(StoreError) as caught:
            write()
        assert str(tmp_path) in str(caught.value)
        assert os.strerror(number) in str(caught.value)
        assert remedy in str(caught.value)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_of_many_exclusive_creators_one_wins_and_its_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    won: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        if create_exclusive(path, str(number).encode() * 1000):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert path.read_text() == str(won[0]) * 1000
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_appears_with_all_its_files_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "made"

    def half(target: Path) -> None:
        (target / "one").write_text("1")
        assert not folder.exists()
        raise RuntimeError("on the way")

    with pytest.raises(RuntimeError):
        create_folder_with(folder, half)
    assert names(tmp_path) == []
    create_folder_with(folder, lambda target: (target / "one").write_text("1") and None)
    with pytest.raises(StoreError, match="made"):  # what has a name never changes
        create_folder_with(folder, lambda target: (target / "one").write_text("2") and None)
    assert (folder / "one").read_text() == "1"
    assert names(tmp_path) == ["made"]


def test_errors_are_one_line_with_the_stated_exit_codes() -> None:
    error = StoreError("cannot\n  write  x", "Do\nthis")
    assert str(error) == "cannot write x. Do this"
    codes = {
        kind: kind("x").exit_code for kind in (LoopreproError, StoreError, ConfigError, IdentityCollision, SchedulerUnreachable)
    }
    assert codes == {LoopreproError: 1, StoreError: 1, ConfigError: 2, IdentityCollision: 2, SchedulerUnreachable: 3}


def test_canonical_json_is_one_text_per_value() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "ü"}) == '{"a":"\\u00fc","b":[1,2.5,null]}'
    assert pretty_json({"b": 1, "a": "ü"}) == '{\n  "a": "ü",\n  "b": 1\n}\n'
    for write in (canonical_json, pretty_json):
        for value in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="JSON compliant"):
                write({"x": value})


def test_json_is_read_back_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"x": 0.1})
    assert read_json(path) == {"x": 0.1}
    path.write_text('{"x": 0.')
    with pytest.raises(StoreError, match=r"a\.json cannot be read as JSON"):
        read_json(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match=r"a\.json cannot be read as JSON"):
        read_json(path)
    with pytest.raises(StoreError, match=r"b\.json does not exist"):
        read_json(tmp_path / "b.json")


def test_sha256_of_a_known_text(tmp_path: Path) -> None:
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, "abc"
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_bytes(b"abc") == sha256_file(tmp_path / "abc") == known


YAML = """\
name: x
axes:
  one:
    - {role: a}
    - role: b
      set: {k: 1}
"""


def test_yaml_remembers_the_line_of_every_key(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(YAML)
    document = read_yaml(path)
    assert document.value == {"name": "x", "axes": {"one": [{"role": "a"}, {"role": "b", "set": {"k": 1}}]}}
    assert document.line(("axes",)) == 2
    assert document.line(("axes", "one", 0, "role")) == 4
    assert document.line(("axes", "one", 1, "set", "k")) == 6
    assert document.line(("axes", "one", 1, "label")) == 5  # of the point that lacks it
    assert document.line(("nowhere",)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", r"x\.yaml:2: key 'a' stands twice \(first on line 1\)"),
        ("a: [1\nb: 2\n", r"x\.yaml:2: not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", r"x\.yaml:1: not valid YAML"),
        ("a: 1\n--- \nb: 2\n", r"x\.yaml:2: not valid YAML"),
        ("a: {? [1, 2] : 3}\n", r"x\.yaml:1: "),
        ("a: *nobody\n", r"x\.yaml:1: not valid YAML"),
    ],
)
def test_bad_yaml_is_named_by_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_yaml(path)


def test_a_yaml_alias_that_contains_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a [*a]\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:1: "):
        read_yaml(path)


def test_an_unreadable_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\xfa")
    for path in (tmp_path / "x.yaml", tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"cannot read {path}"):
            read_yaml(path)
