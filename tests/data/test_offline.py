"""English that ships with Python: enough of it, prose, the same each time, and prepared within seconds."""

from __future__ import annotations

from pathlib import Path

from looprepro.config.corpus import read_manifest
from looprepro.data import offline
from looprepro.data.catalog import ensure
from looprepro.data.offline import OfflineText, module_text, prose


def test_the_smoke_corpus_is_english_of_two_megabytes(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Prepared by a sweep without being asked for, once."""
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    said: list[str] = []
    ensure("offline-smoke", said.append)
    folder = tmp_path / "offline-smoke"
    manifest = read_manifest(folder)
    assert manifest.vocabulary == 1024
    assert 500_000 < manifest.tokens("train") < 2_000_000
    assert 10 <= manifest.documents("validation") < 0.15 * manifest.documents("train")
    assert manifest.source["revision"].startswith("Python 3.")
    ensure("offline-smoke", said.append)
    assert len(said) == 2


def test_the_mini_corpus_lists_what_it_read(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from importlib import metadata

    monkeypatch.setattr(offline, "PACKAGES", ("pydantic", "no-such-package"))
    monkeypatch.setattr(offline, "_modules", lambda root: sorted(root.glob("a*.py")))
    described = OfflineText(packages=True).describe()
    (listed,) = described["packages"]
    assert (listed["package"], listed["version"]) == ("pydantic", metadata.version("pydantic"))
    assert len(listed["sha256"]) == 64
    assert described["sha256"] != OfflineText(packages=False).describe()["sha256"]


def test_docstrings_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    long = " ".join(["It is about words that follow one another in a sentence."] * 2)
    code = f'''"""Module. {long}"""
class A:
    """Class. {long}"""
    def f(self):
        """Method. {long}"""
        def inner():
            """Inner. {long}"""
if True:
    async def g():
        """Function. {long}"""
def short():
    """Too short."""
'''
    (tmp_path / "code.py").write_text(code)
    found = module_text(tmp_path / "code.py").split("\n\n")
    assert [part.split(".")[0] for part in found] == ["Module", "Class", "Method", "Function"]
    (tmp_path / "broken.py").write_text("def (")
    assert module_text(tmp_path / "broken.py") == ""


def test_prose_is_kept_and_code_tables_and_headings_are_not() -> None:
    sentence = "The array is sorted along the given axis, and the order of equal elements is kept as it was before the call."
    text = "\n\n".join(
        [
            "Parameters\n----------",
            "x : array_like, shape (n, m)",
            sentence,
            ">>> np.sort([3, 1, 2]).",
            sentence.replace("array", "list"),
        ]
    )
    assert prose(text) == f"{sentence}\n\n{sentence.replace('array', 'list')}"
    assert prose("Short. Nothing else here at all.") == ""
