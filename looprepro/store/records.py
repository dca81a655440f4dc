"""Everything the store holds about one cell, as plain values: what collect turns into rows. Never writes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from looprepro.config.presence import Presence
from looprepro.files.errors import StoreError
from looprepro.store.layout import attempt_name, read_bytes, read_document
from looprepro.store.status import AttemptReading, CellReading

Document = Mapping[str, Any]
LOG_END = 400
"""Bytes of a log's end that are kept where the log itself stays behind."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A file that cannot be trusted. What it would have said counts as missing."""

    path: str
    reason: str


@dataclass(slots=True)
class CellRecord:
    """One cell whose folder exists."""

    id: str
    config: Document
    """The resolved cell; empty where its file cannot be read."""
    presence: Presence
    result: Document | None = None
    provenance: Document = field(default_factory=dict)
    """Of the attempt that published the result, else of the latest."""
    evaluations: dict[str, Document] = field(default_factory=dict)
    metrics: list[list[Document]] = field(default_factory=list)
    """Lines of metrics.jsonl, one list per attempt, attempts ascending. A line cut off by a crash is left out."""
    series: list[Document] = field(default_factory=list)
    """series.json of the attempts that have one, attempts ascending."""
    attempts: list[Document] = field(default_factory=list)
    """How each attempt went, attempts ascending: number, status, cause, step, device seconds, provenance, and size and
    checksum of its files log, metrics and changes."""
    problems: list[Problem] = field(default_factory=list)


def record_of(folder: str, reading: CellReading) -> CellRecord:
    """Complete ``reading`` by what status did not need: configuration, provenance, metrics, series."""
    record = CellRecord(reading.id, {}, reading.presence, reading.result)
    record.problems = [Problem(path, reason) for path, reason in reading.problems]
    record.config = _document(record, f"{folder}/cell.json").get("config", {})
    for evaluation_id, document in reading.evaluations.items():
        path = f"{folder}/evaluations/{evaluation_id}.json"
        if _finite(document.get("metrics")) and _finite(document.get("series")):
            record.evaluations[evaluation_id] = document
        else:
            record.problems.append(Problem(path, "it holds a value that is not finite"))
    for attempt in reading.attempts:
        path = f"{folder}/attempts/{attempt_name(attempt.number)}"
        record.metrics.append(_lines(record, f"{path}/metrics.jsonl"))
        series = _document(record, f"{path}/series.json", schema=False)
        if series:
            record.series.append(series)
        record.attempts.append(_account(record, path, attempt))
    if cut := _cut_off(record):
        record.problems.append(Problem(f"{folder}/attempts/*/metrics.jsonl", cut))
    if record.attempts:
        number = reading.result["attempt"] if reading.result else reading.attempts[-1].number
        record.provenance = next((one["provenance"] for one in record.attempts if one["attempt"] == number), {})
    return record


def _cut_off(record: CellRecord) -> str:
    """Why the log of a trained cell is not all of it; "" where it is, or there is none. The last step is always logged."""
    steps = [line["step"] for attempt in record.metrics for line in attempt if isinstance(line.get("step"), int)]
    trained = (record.result or {}).get("step")
    if record.presence.status != "done" or not steps or not isinstance(trained, int) or max(steps) >= trained:
        return ""
    return f"it ends at step {max(steps)} of {trained}"


def _account(record: CellRecord, path: str, attempt: AttemptReading) -> Document:
    account: dict[str, Any] = {
        "attempt": attempt.number,
        "status": attempt.status,
        "cause": attempt.cause,
        "step": attempt.step,
        "device_seconds": round(attempt.seconds, 3),
        "provenance": _document(record, f"{path}/provenance.json"),
    }
    for name, file in (("log", "log.txt"), ("metrics", "metrics.jsonl"), ("changes", "changes.diff")):
        content = _bytes(record, f"{path}/{file}")
        if content is not None:
            account[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            if name == "log":
                account[name]["end"] = content[-LOG_END:].decode("utf-8", "replace")
    return account


def _bytes(record: CellRecord, path: str) -> bytes | None:
    try:
        content = read_bytes(path)
    except StoreError as error:
        record.problems.append(Problem(path, error.message))
        return None
    return None if content is None else content[0]


def _document(record: CellRecord, path: str, *, schema: bool = True) -> Document:
    try:
        if schema:
            return read_document(path) or {}
        content = read_bytes(path)
        value = json.loads(content[0]) if content else {}
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return value
    except StoreError as error:
        record.problems.append(Problem(path, error.message))
    except ValueError as error:
        record.problems.append(Problem(path, f"it is not whole: {error}"))
    return {}


def _lines(record: CellRecord, path: str) -> list[Document]:
    try:
        content = read_bytes(path)
    except StoreError as error:
        record.problems.append(Problem(path, error.message))
        return []
    if content is None:
        return []
    whole, _, _cut_off = content[0].rpartition(b"\n")
    rows: list[Document] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not a JSON object")
            rows.append(row)
        except ValueError as error:
            record.problems.append(Problem(path, f"line {number} is not whole: {error}"))
    return rows


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list) else True
