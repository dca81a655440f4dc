"""A collected cell run again: what it was, and whether its numbers come out the same, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from looprepro.analysis.cells import Cells, read_cells
from looprepro.analysis.results import Points, Results, folder_of, load_results
from looprepro.analysis.rows import cell_series
from looprepro.analysis.schema import Row
from looprepro.files.errors import ConfigError, StoreError
from looprepro.planning.keys import by_start
from looprepro.store import CellRecord

Place = tuple[str, str]
"""(Evaluation, metric), or ("series", name)."""
_ENVIRONMENT = ("cpu", "cpu_numbers", "device", "platform", "python", "versions", "commit", "changes", "threads")
"""Parts of a provenance that can change a bit."""


@dataclass(frozen=True)
class Recorded:
    """What results/<scale>/ says of one cell."""

    id: str
    config: Mapping[str, Any]
    evaluations: Mapping[str, Mapping[str, Any]]
    """Evaluation id -> its settings."""
    execution: Mapping[str, Any]
    """Settings of the execution that the rows record; what they do not record changes no number."""
    pack: str
    """The seeds that it was trained with as one stack; empty where it was trained alone."""
    environment: Mapping[str, Any]
    """Provenance of the attempt that finished it."""
    status: str
    cause: str
    """Why it diverged, and at which step."""
    numbers: Mapping[Place, tuple[float, int]]
    """Value and items of every metric."""
    series: Mapping[str, Points] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """A cell against its repetition."""

    id: str
    equal: int
    """Numbers and series that are the same to the last bit."""
    different: Mapping[Place, tuple[object, object]]
    """Where they are not: what was recorded, and what came out (None: nothing). A series shows its last values."""
    environment: Mapping[str, tuple[object, object]]
    """What else differs: processor, versions, commit, ...; recorded, and here."""


def recorded(results_dir: Path, scale: str, wanted: str | None) -> list[Recorded]:
    """The finished cell of ``scale`` whose id starts with ``wanted`` (None: one drawn at random), then those that were trained
    in one stack with it.

    :class:`StoreError` where nothing was collected; :class:`ConfigError` where there is no such cell or several, or where its
    stack changed on the way.
    """
    found = load_results(results_dir, scale)
    described = read_cells(folder_of(results_dir, scale))
    rows: dict[str, list[Row]] = {}
    for row in found.rows:
        if row["status"] in ("done", "diverged") and row["cell"] in described.cell:
            rows.setdefault(row["cell"], []).append(row)
    if not rows:
        raise StoreError(f"no finished cell was collected at scale {scale}", f"Run: looprepro collect --scale {scale}")
    chosen = by_start(wanted, rows, "collected cell") if wanted is not None else random.choice(sorted(rows))
    pack = rows[chosen][0].get("pack") or ""
    if "+" in pack:
        raise ConfigError(f"{chosen} was resumed in another stack ({pack})", "Repeat one that was not")
    others = [id for id, own in rows.items() if pack and id != chosen and own[0].get("pack") == pack]
    return [_recorded(found, described, id, rows[id]) for id in (chosen, *others)]


def _recorded(found: Results, described: Cells, id: str, rows: list[Row]) -> Recorded:
    line, first = described.cell[id], rows[0]
    attempt = next((one for one in line["attempts"] if one["attempt"] == first["attempt"]), line["attempts"][-1])
    environment = described.environment[attempt["environment"]]["provenance"]
    series = found.series_of(id)
    device = "cpu" if environment.get("device") == environment.get("cpu") else "cuda"
    execution = {"device": device, "threads": first["threads"], "compile": first["compile"], "tf32": first["tf32"]}
    optional = {"kernels": first.get("kernels"), "micro_batch": environment.get("micro_batch")}
    execution |= {name: value for name, value in optional.items() if value is not None}
    logged = series.get("loss", ([], []))[0]
    if len(logged) > 1:
        execution["log_every"] = int(logged[1])  # the first step is logged, then every so many-th
    numbers = {(row["evaluation"], row["metric"]): (row["value"], row["items"]) for row in rows if row.get("value") is not None}
    evaluations = {name: described.evaluation[name]["settings"] for name in sorted({evaluation for evaluation, _ in numbers})}
    pack, status = first.get("pack") or "", first["status"]
    cause = first.get("cause") or ""
    return Recorded(id, line["config"], evaluations, execution, pack, environment, status, cause, numbers, series)


def compare(was: Recorded, record: CellRecord) -> Comparison:
    """``record``: of the repetition, in a store of its own."""
    now = {
        (evaluation, metric): (float(count["value"]), int(count["items"]))
        for evaluation, document in record.evaluations.items()
        for metric, count in document["metrics"].items()
    }
    different: dict[Place, tuple[object, object]] = {}
    if record.presence.status != was.status:
        different["cell", "status"] = (was.status, record.presence.status)
    pairs: Iterable[tuple[Place, object, object]] = [
        # Of a run that diverged there is nothing else to compare: where and why it did.
        *([(("cell", "cause"), was.cause, record.presence.cause)] if was.status == "diverged" else []),
        *((place, was.numbers.get(place), now.get(place)) for place in sorted(was.numbers.keys() | now.keys())),
        *_series(was.series, cell_series(record)),
    ]
    equal = 0
    for place, before, after in pairs:
        if before == after:
            equal += 1
        else:
            different[place] = (before, after)
    here = record.provenance
    changed = {
        name: (was.environment.get(name), here.get(name))
        for name in _ENVIRONMENT
        if was.environment.get(name) != here.get(name)
        and (name != "cpu_numbers" or name in was.environment)  # runs before it was recorded
    }
    return Comparison(was.id, equal, different, changed)


def _series(was: Mapping[str, Points], now: Mapping[str, Points]) -> Iterable[tuple[Place, object, object]]:
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before is not None and after is not None and before != after:
            yield ("series", name), before[1][-1:], after[1][-1:] if before[1][-1:] != after[1][-1:] else "differs earlier"
        else:
            yield ("series", name), before, after
