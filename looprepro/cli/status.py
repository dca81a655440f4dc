"""``looprepro status``: cells by status, time spent, what is missing. Reads files; never writes, never asks twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from looprepro.cli.options import (
    RESULTS,
    RUNS,
    Json,
    Only,
    ResultsFolder,
    Runs,
    Scale,
    Seeds,
    Targets,
    device_hours,
    expansions_of,
)

if TYPE_CHECKING:
    from looprepro.config.presence import Presence
    from looprepro.planning import Expansion

NAMED = 20
"""Cells named one by one per sweep; the rest is counted."""


def status(
    targets: Targets = None,
    scale: Scale = None,
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = RUNS,
    results: ResultsFolder = RESULTS,
    as_json: Json = False,
) -> None:
    """Cells by status, hours spent, what is missing. Without a sweep: all of them."""
    from looprepro.cli.presence import presence
    from looprepro.store import Store

    expansions = expansions_of(targets, False, scale, only, seeds, all_if_none=True)
    known = presence(Store(runs), results, expansions[0].scale, {c.id for e in expansions for c in e.cells})
    found = [_of_sweep(expansion, known) for expansion in expansions]
    if as_json:
        typer.echo(json.dumps({"scale": expansions[0].scale, "sweeps": found}, indent=2))
        return
    for sweep in found:
        counts = ", ".join(f"{n} {name}" for name, n in sweep["status"].items())
        typer.echo(
            f"{sweep['sweep']} ({expansions[0].scale}): {sweep['complete']}/{sweep['wanted']} cells complete; {counts}; "
            f"{device_hours(sweep['device_hours'])} device hours spent"
        )
        notable = [cell for cell in sweep["missing"] if cell["status"] != "planned"]
        for cell in notable[:NAMED]:
            step = f", step {cell['step']} of {cell['steps']}" if cell["step"] else ""
            cause = f": {cell['cause']}" if cell["cause"] else ""
            lacking = f", lacks T={','.join(map(str, cell['lacks']))}" if cell["status"] == "done" else ""
            typer.echo(f"  {cell['status']:<9} {cell['id']}{step}{lacking}{cause}")
        if len(notable) > NAMED:
            typer.echo(f"  and {len(notable) - NAMED} more (--json names all)")


def _of_sweep(expansion: Expansion, known: dict[str, Presence]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    hours = 0.0
    missing = []
    for planned in expansion.cells:
        there = known[planned.id]
        counts[there.status] += 1
        hours += there.hours or 0.0
        lacks = [e.evaluation.T for e in planned.evaluations if e.id not in there.evaluations]
        if there.status == "diverged" or (there.status == "done" and not lacks):
            continue
        missing.append(
            {
                "id": planned.id,
                "status": there.status,
                "cause": there.cause,
                "step": there.step,
                "steps": planned.cell.training.steps,
                "attempts": there.attempts,
                "lacks": lacks,
            }
        )
    return {
        "sweep": expansion.sweep.name,
        "wanted": len(expansion.cells),
        "complete": len(expansion.cells) - len(missing),
        "status": dict(sorted(counts.items())),
        "device_hours": hours,
        "missing": missing,
    }
