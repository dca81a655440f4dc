"""Where a cell stands in the tables of its sweeps: written as a request when a sweep is run, read back by collect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from looprepro.analysis.source import Document
from looprepro.planning import Expansion


@dataclass(slots=True)
class Placement:
    """One place of a cell in one sweep: its role on each axis, and the evaluations that are wanted there."""

    sweep: str
    scale: str
    overrides: str
    axes: dict[str, str]
    labels: dict[str, str]
    evaluations: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Evaluation id -> (role, T)."""


def request_document(expansion: Expansion) -> dict[str, Any]:
    """What ``Store.record_request`` keeps of an expansion. A cell with several places in the sweep is listed once for each."""
    return {
        "sweep": expansion.sweep.name,
        "scale": expansion.scale,
        "overrides": list(expansion.overrides),
        "cells": [
            {
                "id": planned.id,
                "seed": planned.cell.seed,
                "axes": dict(place.axes),
                "labels": dict(place.labels),
                "evaluations": [{"id": e.id, "role": e.role, "T": e.evaluation.T} for e in place.evaluations],
            }
            for planned in expansion.cells
            for place in planned.placements
        ],
    }


def placements(requests: Iterable[Document]) -> dict[str, list[Placement]]:
    """Cell id -> its places. The same place asked for twice is one place with the evaluations of both and the later labels.

    Where a later request has another cell in the place of the same seed (the sweep file or an operator's source was changed),
    the earlier one is asked for no more.
    """
    found: dict[str, dict[tuple[Any, ...], Placement]] = {}
    latest: dict[tuple[Any, ...], str] = {}
    for request in requests:
        sweep, scale, overrides = request["sweep"], request["scale"], overrides_text(request.get("overrides") or ())
        for cell in request["cells"]:
            axes = dict(cell["axes"])
            key = (sweep, scale, overrides, *sorted(axes.items()))
            place = found.setdefault(cell["id"], {}).setdefault(key, Placement(sweep, scale, overrides, axes, {}))
            place.labels = dict(cell.get("labels") or {})
            for evaluation in cell["evaluations"]:
                place.evaluations[evaluation["id"]] = (evaluation["role"], int(evaluation["T"]))
            if "seed" in cell:
                earlier = latest.get((*key, cell["seed"]), cell["id"])
                latest[*key, cell["seed"]] = cell["id"]
                if earlier != cell["id"]:
                    found[earlier].pop(key, None)
    return {cell: list(places.values()) for cell, places in found.items() if places}


def overrides_text(overrides: Sequence[str]) -> str:
    """Overrides as they stand in a row; "" where there are none."""
    return " ".join(overrides)
