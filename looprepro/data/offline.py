"""English that is on every machine with Python: the language reference and docstrings. For scales smoke and mini.

``offline-smoke``: ``pydoc_data.topics`` and the docstrings of the standard library. ``offline-mini``: also the docstrings
of installed dependencies, paragraphs of prose only. What comes out depends on the versions installed; the manifest lists them.
"""

from __future__ import annotations

import ast
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from looprepro.data.source import clean
from looprepro.files.checksum import sha256_bytes
from looprepro.files.errors import ConfigError

PACKAGES = ("torch", "numpy", "scipy", "pandas", "matplotlib", "sympy", "networkx", "pyarrow", "hypothesis", "pydantic")
"""Dependencies whose docstrings hold the most prose; those that are not installed are left out and not listed."""
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "testing", "__pycache__", "_vendor", "externals"}
SHORTEST_MODULE = 200
"""Characters of docstrings below which a module is no document."""
SHORTEST_DOCSTRING = 40


class OfflineText:
    """Source of :mod:`looprepro.data.prepare`; gathered once, held in memory (megabytes)."""

    def __init__(self, *, packages: bool) -> None:
        self._packages = packages
        self._texts: list[str] | None = None
        self._listed: list[dict[str, str]] = []
        self._given = 0

    def describe(self) -> dict[str, Any]:
        """Python's version, and every package with version and the checksum of its text."""
        texts = self._gathered()
        everything = sha256_bytes("\0".join(texts).encode("utf-8"))
        return {
            "name": "offline-mini" if self._packages else "offline-smoke",
            "revision": f"Python {platform.python_version()}",
            "packages": self._listed,
            "documents": len(texts),
            "sha256": everything,
        }

    def documents(self, cursor: Any = None) -> Iterator[str]:
        """See :class:`looprepro.data.source.Source`."""
        self._given = int(cursor or 0)
        for text in self._gathered()[self._given :]:
            self._given += 1
            yield text

    def cursor(self) -> int:
        """Documents given."""
        return self._given

    def _gathered(self) -> list[str]:
        if self._texts is None:
            from pydoc_data.topics import topics

            texts = [clean(topics[name]) for name in sorted(topics)]
            library = Path(sysconfig.get_paths()["stdlib"])
            texts += (text for path in _modules(library) if (text := module_text(path)))
            if self._packages:
                texts += self._prose()
            if not texts:
                raise ConfigError("this Python ships without its sources", "Use another installation of Python")
            self._texts = list(dict.fromkeys(texts))
        return self._texts

    def _prose(self) -> Iterator[str]:
        """Of the installed packages, noting what was read."""
        for name in PACKAGES:
            try:
                distribution = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue
            root = Path(str(distribution.locate_file(name)))
            texts = [text for path in _modules(root) if (text := prose(module_text(path)))]
            checksum = sha256_bytes("\0".join(texts).encode("utf-8"))
            self._listed.append({"package": name, "version": distribution.version, "sha256": checksum})
            yield from texts


def _modules(root: Path) -> Iterator[Path]:
    """Python files below ``root`` in sorted order, without tests and bundled packages."""
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            yield path


def module_text(path: Path) -> str:
    """The docstrings of one file in order, blank lines between; empty where they are few or the file is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    found = []
    for node in _documented(tree):
        text = ast.get_docstring(node, clean=True)
        if text and len(text) >= SHORTEST_DOCSTRING:
            found.append(clean(text.strip()))
    joined = "\n\n".join(found)
    return joined if len(joined) >= SHORTEST_MODULE else ""


def _documented(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Modules, classes and functions, depth first, in the order of the file; bodies of functions are not searched."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    if isinstance(node, ast.Module | ast.ClassDef | ast.If | ast.Try):
        for child in node.body:
            yield from _documented(child)


_WORD = re.compile(r"[A-Za-z]{2,}")


def prose(text: str) -> str:
    """The paragraphs of ``text`` that read as sentences: eight words or more, no prompt, few signs, an end mark."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        words = _WORD.findall(line)
        signs = sum(not (c.isalpha() or c.isspace() or c in ".,;:'\"()-`?!") for c in line)
        if len(words) >= 8 and ">>>" not in line and signs <= 0.06 * len(line) and line.endswith((".", ":", "!", "?")):
            kept.append(line)
    joined = "\n\n".join(kept)
    return joined if len(joined) >= SHORTEST_MODULE else ""
