"""What a set of collected rows cost and where they come from, each cell counted once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from looprepro.analysis.schema import Row


@dataclass(frozen=True)
class Cost:
    """Cells of one sweep and the device hours behind them."""

    sweep: str
    statuses: dict[str, int]
    device_hours: float
    unknown: int
    """Cells whose hours are not recorded."""


def costs(rows: Iterable[Row]) -> list[Cost]:
    """One per sweep (with its overrides), then all of it, where a cell that two sweeps share counts once."""
    by_sweep: dict[str, dict[str, Row]] = {}
    everything: dict[str, Row] = {}
    for row in rows:
        name = f"{row['sweep']} {row['overrides']}" if row.get("overrides") else row["sweep"]
        by_sweep.setdefault(name, {})[row["cell"]] = row
        everything[row["cell"]] = row
    found = [_cost(name, by_sweep[name]) for name in sorted(by_sweep)]
    return [*found, _cost("all, each cell once", everything)]


def _cost(name: str, cells: dict[str, Row]) -> Cost:
    hours = [row["device_hours"] for _, row in sorted(cells.items()) if "device_hours" in row]
    statuses = Counter(row["status"] for row in cells.values())
    return Cost(name, dict(sorted(statuses.items())), sum(hours), len(cells) - len(hours))


def origins(rows: Iterable[Row]) -> dict[str, list[tuple[str, int]]]:
    """What the runs were made with: name (commit, device, a package, ...) -> (value, cells), most frequent first."""
    cells = {row["cell"]: row for row in rows}
    counts: dict[str, Counter[str]] = {}
    for row in cells.values():
        for name in ("commit", "device", "host", "dtype", "threads"):
            if name in row:
                value = str(row[name]) + (" (uncommitted changes)" if name == "commit" and row.get("dirty") else "")
                counts.setdefault(name, Counter())[value] += 1
        for package, version in json.loads(row.get("versions", "{}")).items():
            counts.setdefault(package, Counter())[str(version)] += 1
        if row.get("archived"):
            counts.setdefault("archived", Counter())["only the rows remain"] += 1
        if row.get("resumed"):
            counts.setdefault("resumed", Counter())["after an interruption"] += 1
    return {name: sorted(counter.items(), key=lambda item: (-item[1], item[0])) for name, counter in counts.items()}
