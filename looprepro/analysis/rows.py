"""From one cell's record and its places in sweeps to rows of results.parquet and series. Plain dicts throughout."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from looprepro.analysis.placements import Placement
from looprepro.analysis.results import Points
from looprepro.analysis.schema import Row
from looprepro.analysis.source import Document
from looprepro.store import CellRecord, Problem

LOGGED = (
    "loss",
    "grad_norm",
    "validation_loss",
    "max_decay",
    "relative_change",
    "alpha_1",
    "alpha_2",
    "residual",
    "iterations",
    "exact_accuracy",
    "halted",
)
"""Values of metrics.jsonl that become series."""
REASONER_TASKS = ("state_tracking", "sudoku", "maze", "arc")
ENDED = ("done", "diverged", "failed")
"""Statuses that leave rows. Whatever else a cell is (running, lost, planned), it is missing, and missing is not stored."""


def unusable(record: CellRecord) -> list[Problem]:
    """Take evaluations and series of the wrong shape out of ``record``; what was wrong with each."""
    problems = []
    for name, document in list(record.evaluations.items()):
        metrics, series = document.get("metrics"), document.get("series") or {}
        whole = isinstance(metrics, Mapping) and bool(metrics) and all(map(_is_count, metrics.values()))
        if not whole or not isinstance(series, Mapping) or not all(map(_is_points, series.values())):
            del record.evaluations[name]
            problems.append(Problem(f"evaluation {name} of cell {record.id}", "metrics or series have the wrong shape"))
    for number, document in enumerate(record.series):
        drawn = {name: points for name, points in document.items() if name != "schema"}
        if not all(map(_is_points, drawn.values())):
            problems.append(Problem(f"series of cell {record.id}", "x and y are not equally long lists of numbers"))
        record.series[number] = {name: points for name, points in drawn.items() if _is_points(points)}
    return problems


def cell_rows(record: CellRecord, places: Sequence[Placement], loss_digest: str | None) -> list[Row]:
    """The rows of one cell: one per place, evaluation and metric; with value null where the cell failed or diverged."""
    status = record.presence.status
    if status not in ENDED or not record.config:
        return []
    shared = _provenance(record) | _trained(record) | _configuration(record.config)
    if loss_digest is not None:
        shared["loss_digest"] = loss_digest
    rows: list[Row] = []
    for place in places:
        here = {"sweep": place.sweep, "scale": place.scale, "overrides": place.overrides, "cell": record.id}
        here |= {f"axis_{axis}": role for axis, role in place.axes.items()}
        here |= {f"label_{axis}": label for axis, label in place.labels.items()}
        here |= shared
        for evaluation, (role, budget) in place.evaluations.items():
            measured = {"T": budget, "role_T": role, "evaluation": evaluation}
            if status != "done":
                rows.append(here | measured)
                continue
            document = record.evaluations.get(evaluation)
            if document is None:
                continue
            if "attempt" in document:
                measured["attempt"] = document["attempt"]
            if _is_finite(seconds := document.get("geometry_seconds")):
                measured["geometry_hours"] = seconds / 3600
            for metric, count in document["metrics"].items():
                rows.append(here | measured | {"metric": metric, "value": count["value"], "items": count.get("items")})
    return rows


def cell_series(record: CellRecord) -> dict[str, Points]:
    """All series of one cell: the training log merged over attempts, what training drew, what evaluations drew.

    For a given step the later attempt wins: an attempt that resumed repeats the steps after its checkpoint.
    """
    series: dict[str, Points] = {}
    for name in LOGGED:
        merged: dict[float, float] = {}
        for attempt in record.metrics:
            for line in attempt:
                step, value = line.get("step"), line.get(name)
                if _is_finite(step) and _is_finite(value):
                    merged[float(step)] = float(value)
        if merged:
            steps = sorted(merged)
            series[name] = (steps, [merged[step] for step in steps])
    for document in record.series:
        series |= _drawn(document, "")
    for id, document in record.evaluations.items():
        evaluation, drawn = document.get("evaluation") or {}, document.get("series") or {}
        if evaluation.get("kind") == "reasoner":
            # One cell is measured at one T with several settings of its solver, so T does not tell these apart.
            drawn = {f"{name.partition('@')[0]}@{id}": points for name, points in drawn.items()}
        series |= _drawn(drawn, f"@T={evaluation.get('T')}")
    return series


def series_name(row: Row, name: str) -> str:
    """What the series ``name`` of the cell of ``row``, or of its evaluation, is called in series.parquet."""
    if name in LOGGED:
        return name
    return f"{name}@{row['evaluation']}" if row.get("task") in REASONER_TASKS else f"{name}@T={row['T']}"


def digest_of(points: Points | None) -> str | None:
    """Fingerprint of a loss curve, to find one run under two seeds. None for fewer than two points: too little to tell."""
    if points is None or len(points[0]) < 2:
        return None
    return hashlib.sha256(repr(points).encode()).hexdigest()[:16]


def _drawn(document: Document, suffix: str) -> dict[str, Points]:
    return {
        name if "@" in name else name + suffix: (list(map(float, points["x"])), list(map(float, points["y"])))
        for name, points in document.items()
    }


def _configuration(config: Document) -> Row:
    task, model, training = config.get("task") or {}, config.get("model") or {}, config.get("training") or {}
    injection, recurrence = model.get("injection") or {}, model.get("recurrence") or {}
    values = {
        "task": task.get("kind"),
        "task_group": task.get("group"),
        "length": task.get("length"),
        "curriculum": task.get("curriculum"),
        "injection": injection.get("method"),
        "chart": injection.get("chart"),
        "groups": injection.get("groups"),
        "width": model.get("width"),
        "T_max": recurrence.get("maximum"),
        "steps": training.get("steps"),
        "dtype": training.get("dtype"),
        "seed": config.get("seed"),
    }
    return {name: value for name, value in values.items() if value is not None}


def _trained(record: CellRecord) -> Row:
    """Steps of a finished run: a language model's configuration gives tokens. A diverged run says only where it broke off."""
    step = (record.result or {}).get("step")
    return {"steps": step} if record.presence.status == "done" and isinstance(step, int) else {}


def _provenance(record: CellRecord) -> Row:
    presence, provenance, result = record.presence, record.provenance, record.result or {}
    row: Row = {"status": presence.status, "archived": False, "attempt": result.get("attempt", presence.attempts)}
    if presence.status != "done":
        row["cause"] = presence.cause
    if "resumed" in result:
        row["resumed"] = result["resumed"]
    if result.get("pack"):
        row["pack"] = result["pack"]
    for name in ("threads", "compile", "tf32", "commit", "dirty", "device", "host"):
        if provenance.get(name) is not None:
            row[name] = provenance[name]
    if "kernels" in result:
        row["kernels"] = result["kernels"]
    if provenance.get("versions"):
        row["versions"] = json.dumps(provenance["versions"], sort_keys=True, separators=(",", ":"))
    if "wall_seconds" in result:
        row["wall_hours"] = result["wall_seconds"] / 3600
    if "device_seconds" in result:
        row["device_hours"] = result["device_seconds"] / 3600
    elif presence.hours is not None:
        row["device_hours"] = presence.hours
    return row


def _is_finite(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(count: object) -> bool:
    return isinstance(count, Mapping) and _is_finite(count.get("value"))


def _is_points(points: object) -> bool:
    if not isinstance(points, Mapping):
        return False
    x, y = points.get("x"), points.get("y")
    return isinstance(x, list) and isinstance(y, list) and len(x) == len(y) and all(map(_is_finite, (*x, *y)))
