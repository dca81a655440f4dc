"""What is there of the wanted cells: the store first, then archived rows of cells whose folder is gone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from looprepro.config.presence import Presence
from looprepro.store import Store


def presence(store: Store, results: Path, scale: str, ids: Iterable[str]) -> dict[str, Presence]:
    """Cell id -> what is known of it. Writes nothing; reads the parquet file only where a cell has no folder."""
    wanted = list(ids)
    known = store.presence(wanted)
    absent = set(wanted) - store.existing(wanted)
    if absent and (results / scale / "results.parquet").exists():
        from looprepro.analysis.archive import archived_presence

        known |= archived_presence(results, scale, absent)
    return known
