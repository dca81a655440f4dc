"""The columns of results.parquet and series.parquet: names, types, order. One row, one number, nothing aggregated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

Row = dict[str, Any]
Kind = Literal["string", "int64", "double", "bool"]

PLACEMENT: dict[str, Kind] = {"sweep": "string", "scale": "string", "overrides": "string", "cell": "string"}
"""Where a number belongs. The axis_<name> (role) and label_<name> columns of all sweeps follow these."""

MEASURES: dict[str, Kind] = {
    "seed": "int64",
    "T": "int64",
    "role_T": "string",
    "evaluation": "string",
    "metric": "string",
    "value": "double",
    "items": "int64",
    "status": "string",
    "cause": "string",
    "attempt": "int64",
    "resumed": "int64",
    "pack": "string",
    "threads": "int64",
    "dtype": "string",
    "compile": "bool",
    "kernels": "string",
    "tf32": "bool",
    "commit": "string",
    "dirty": "bool",
    "versions": "string",
    "device": "string",
    "host": "string",
    "wall_hours": "double",
    "device_hours": "double",
    "geometry_hours": "double",
    "archived": "bool",
    "task": "string",
    "task_group": "string",
    "length": "int64",
    "curriculum": "string",
    "injection": "string",
    "chart": "string",
    "groups": "int64",
    "width": "int64",
    "T_max": "int64",
    "steps": "int64",
    "loss_digest": "string",
}
"""The number, how it came about, and the parts of the configuration that tables and figures group by."""

SERIES: dict[str, Kind] = {"cell": "string", "series": "string", "x": "double", "y": "double"}
"""Points of a series in their order: step and loss, position and accuracy, real and imaginary part of an eigenvalue."""

_PREFIXES = ("axis_", "label_")


def columns_of(rows: Iterable[Row]) -> dict[str, Kind]:
    """The schema for ``rows``: the fixed columns, and the axis columns that occur, in alphabetical order."""
    axes = sorted({name for row in rows for name in row if name.startswith(_PREFIXES)})
    return PLACEMENT | dict.fromkeys(axes, "string") | MEASURES


def sort_key(axes: Sequence[str]) -> Any:
    """Key that puts rows in their one order: sweep, overrides, axes, seed, T, metric; missing values first."""
    texts = ("sweep", "scale", "overrides", *axes)

    def key(row: Row) -> tuple[Any, ...]:
        return (
            *((row.get(name) or "") for name in texts),
            _number(row, "seed"),
            _number(row, "T"),
            row.get("metric") or "",
            row["cell"],
            row.get("evaluation") or "",
        )

    return key


def _number(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    return -1 if value is None else value
