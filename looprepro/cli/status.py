"""``looprepro status``: cells by status, time spent, what is missing. Reads files, asks the scheduler once; never writes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

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
    say,
)

if TYPE_CHECKING:
    from looprepro.config.presence import Presence
    from looprepro.launch.queue import Queue
    from looprepro.planning import Expansion
    from looprepro.store import Store

NAMED = 20
"""Cells named one by one per sweep; the rest is counted."""
WATCH_SECONDS = 30.0
"""Between two looks of --watch where nothing is submitted; else as the cluster's profile says."""
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again and again, until everything has ended.")]


def status(
    targets: Targets = None,
    scale: Scale = None,
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = RUNS,
    results: ResultsFolder = RESULTS,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Cells by status, hours spent, what is missing. Without a sweep: all of them. Exit code 3: the scheduler is silent."""
    from looprepro.cli.presence import look, open_queue, presence, trained_by_other_code
    from looprepro.store import Store

    expansions = expansions_of(targets, False, scale, only, seeds, all_if_none=True, lenient=True)
    store = Store(runs)
    ids = list({cell.id for expansion in expansions for cell in expansion.cells})
    queue = open_queue(store, say)
    while True:
        silent = look(queue, ids, say)
        known = presence(store, results, expansions[0].scale, ids, queue)
        others = trained_by_other_code(store, [id for id, one in known.items() if one.status in ("done", "diverged")])
        found = [_of_sweep(expansion, known, others) for expansion in expansions]
        _print(found, expansions, as_json)
        moving = any(one.status in ("queued", "running") for one in known.values())
        if not watch or not moving:
            break
        time.sleep(WATCH_SECONDS if queue is None else max(one.poll_seconds for one in queue.open) if queue.open else 1.0)
        queue = _again(queue, store)
    if silent and not any(sweep["complete"] for sweep in found) and not any(one.attempts for one in known.values()):
        raise typer.Exit(3)  # neither files nor scheduler tell anything


def _again(queue: Queue | None, store: Store) -> Queue | None:
    from looprepro.cli.presence import open_queue

    if queue is None:
        return open_queue(store, say)
    queue.refresh()
    return queue


def _print(found: Sequence[dict[str, Any]], expansions: Sequence[Expansion], as_json: bool) -> None:
    from looprepro.cli.presence import code_remark
    from looprepro.planning import budgets

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
            lacking = f", lacks {budgets(cell['lacks'])}" if cell["status"] == "done" else ""
            typer.echo(f"  {cell['status']:<9} {cell['id']}{step}{lacking}{cause}")
        if len(notable) > NAMED:
            typer.echo(f"  and {len(notable) - NAMED} more (--json names all)")
        if sweep["other_code"]:
            finished = sum(sweep["status"].get(name, 0) for name in ("done", "diverged"))
            typer.echo(f"  {code_remark(sweep['other_code'], finished)}")


def _of_sweep(expansion: Expansion, known: dict[str, Presence], others: dict[str, str]) -> dict[str, Any]:
    from looprepro.config.costs import total_steps

    counts: Counter[str] = Counter()
    hours = 0.0
    missing = []
    for planned in expansion.cells:
        there = known[planned.id]
        counts[there.status] += 1
        hours += there.hours or 0.0
        if there.complete(e.id for e in planned.evaluations):
            continue
        missing.append(
            {
                "id": planned.id,
                "status": there.status,
                "cause": there.cause,
                "step": there.step,
                "steps": total_steps(planned.cell),
                "attempts": there.attempts,
                "lacks": [e.evaluation.T for e in planned.evaluations if e.id not in there.evaluations],
            }
        )
    return {
        "sweep": expansion.sweep.name,
        "wanted": len(expansion.cells),
        "complete": len(expansion.cells) - len(missing),
        "status": dict(sorted(counts.items())),
        "device_hours": hours,
        "missing": missing,
        "other_code": {cell.id: others[cell.id] for cell in expansion.cells if cell.id in others},
    }
