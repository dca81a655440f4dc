"""What collect asks of a store. :class:`looprepro.store.Store` answers it; so does a dictionary in a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from looprepro.store import CellRecord

Document = Mapping[str, Any]


class Source(Protocol):
    """The reading side of a store, as far as collect needs it. Nothing here writes."""

    def requests(self, scale: str) -> Iterable[Document]:
        """What was asked for at ``scale``, as :func:`looprepro.analysis.placements.request_document` writes it."""

    def request_problems(self, scale: str) -> Iterable[str]:
        """One line per request that cannot be read."""

    def existing(self, ids: Iterable[str]) -> set[str]:
        """Those of ``ids`` that have a folder."""

    def records(self, ids: Iterable[str]) -> Iterator[CellRecord]:
        """One record per id that has a folder, in the order given."""
