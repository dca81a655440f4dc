"""What collect reads: the requests of a scale and one record per cell, as plain values. It knows no path.

:class:`Source` is all that collect asks for, so a test can hand it a dictionary; :mod:`looprepro.analysis.store_source`
answers it from a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from looprepro.config.presence import Presence

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A file that cannot be trusted. What it would have said is counted as missing."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(slots=True)
class CellRecord:
    """Everything the store holds about one cell whose folder exists."""

    id: str
    config: Document
    """The resolved cell, as plain JSON; empty where the file of it cannot be read."""
    presence: Presence
    result: Document | None = None
    """The trusted result of training, or None."""
    provenance: Document = field(default_factory=dict)
    """Of the attempt that published the result (else of the latest): commit, dirty, versions, device, host, threads, ..."""
    evaluations: dict[str, Document] = field(default_factory=dict)
    """Evaluation id -> {"attempt", "evaluation", "metrics", "series"}; only those that are whole, with finite values."""
    metrics: list[list[Document]] = field(default_factory=list)
    """Lines of the training log, one list per attempt, attempts ascending."""
    series: list[Document] = field(default_factory=list)
    """Series that training wrote ({name: {"x": [...], "y": [...]}}), one document per attempt, attempts ascending."""
    problems: list[Problem] = field(default_factory=list)


class Source(Protocol):
    """The reading side of a store, as far as collect needs it. Nothing here writes."""

    def requests(self, scale: str) -> Iterable[Document]:
        """What was asked for at ``scale``: {"sweep", "scale", "overrides", "cells": [...]}.

        A cell there is {"id", "axes": {axis: role}, "labels": {axis: label}, "evaluations": [{"id", "role", "T"}]}.
        """

    def existing(self, ids: Iterable[str]) -> set[str]:
        """Those of ``ids`` that have a folder."""

    def records(self, ids: Iterable[str]) -> Iterator[CellRecord]:
        """One record per id that has a folder, in the order given."""
