"""What a corpus is read from: documents in a fixed order, and a cursor that says how far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Source(Protocol):
    """Some text. Two sources with equal descriptions give equal documents in equal order."""

    def describe(self) -> dict[str, Any]:
        """For the manifest: where the text comes from, at which revision or checksum (JSON)."""

    def documents(self, cursor: Any = None) -> Iterator[str]:
        """The documents after ``cursor`` (None: all). Empty ones are left out."""

    def cursor(self) -> Any:
        """Where the running iteration stands, after the document that it gave last (JSON)."""


def clean(text: str) -> str:
    """``text`` with lone surrogates, which have no UTF-8 form, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
