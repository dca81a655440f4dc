"""``looprepro plan``: what a sweep would run and why; the same path as ``sweep``, minus the running."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from looprepro.cli.options import (
    RESULTS,
    RUNS,
    Every,
    Json,
    Only,
    Pack,
    ResultsFolder,
    Runs,
    Scale,
    Seeds,
    Targets,
    checked_pack,
    device_hours,
    expansions_of,
    say,
)

if TYPE_CHECKING:
    from looprepro.planning import Expansion, Plan
    from looprepro.planning.plan import State

Cells = Annotated[bool, typer.Option("--cells", help="One line per cell.")]
ShowCell = Annotated[
    str | None, typer.Option("--cell", metavar="ID", help="Print this cell as YAML, for looprepro train.", show_default=False)
]
Retrain = Annotated[
    bool, typer.Option("--retrain", help="Train again where an evaluation is missing and the weights are gone.")
]

FINISHED = ("done", "diverged", "evaluate", "needs retraining")
"""States of cells that have been trained."""


def plan(
    targets: Targets = None,
    every: Every = False,
    scale: Scale = None,
    only: Only = None,
    seeds: Seeds = None,
    runs: Runs = RUNS,
    results: ResultsFolder = RESULTS,
    cells: Cells = False,
    cell: ShowCell = None,
    retrain: Retrain = False,
    pack: Pack = None,
    as_json: Json = False,
) -> None:
    """Cells wanted, done and to run with a reason each, and what that costs. Submits nothing, writes nothing."""
    from looprepro.cli.presence import code_remark, trained_by_other_code
    from looprepro.store import Store

    expansions = expansions_of(targets, every, scale, only, seeds)
    if cell is not None:
        typer.echo(_yaml(expansions, cell), nl=False)
        return
    made = make_plan(expansions, runs, results, retrain=retrain, ask=True, pack=checked_pack(pack))
    finished = [item.cell.id for item in made.items if item.state in FINISHED]
    others = trained_by_other_code(Store(runs), finished)
    if as_json:
        typer.echo(json.dumps(document(expansions, made) | {"other_code": others}, indent=2))
        return
    print_plan(expansions, made, every_cell=cells)
    if others:
        typer.echo(f"  {code_remark(others, len(finished))}")


def make_plan(
    expansions: Sequence[Expansion],
    runs: Any,
    results: Any,
    *,
    retrain: bool = False,
    ask: bool = False,
    pack: str | None = None,
) -> Plan:
    """The plan of several sweeps together: a cell that two of them want is one cell. ``ask``: a scheduler that has cells of
    theirs is asked how they are; an executor asks for itself. ``pack`` instead of the scale's."""
    from looprepro.cli.presence import look, open_queue, presence
    from looprepro.planning import merge
    from looprepro.planning import plan as decide
    from looprepro.planning.packs import packed
    from looprepro.store import Store

    merged = packed(merge(expansions), pack)
    store, ids = Store(runs), [planned.id for planned in merged]
    queue = open_queue(store, say) if ask else None
    look(queue, ids, say)
    known = presence(store, results, expansions[0].scale, ids, queue)
    return decide(merged, known, retrain=retrain)


def document(expansions: Sequence[Expansion], made: Plan) -> dict[str, Any]:
    """The plan as JSON."""
    from dataclasses import asdict

    from looprepro.planning.sizes import sizes

    return {
        "sweeps": [expansion.sweep.name for expansion in expansions],
        "scale": expansions[0].scale,
        "overrides": list(expansions[0].overrides),
        "wanted": made.wanted,
        "counts": made.counts,
        "to_run": len(made.to_run),
        "evaluations": {"wanted": made.evaluations_wanted, "done": made.evaluations_done},
        "packs": [[item.cell.id for item in pack] for pack in made.packs],
        "device_hours": made.device_hours,
        "basis": made.bases,
        "sizes": [asdict(size) for size in sizes(made.items)],
        "cells": [
            {
                "id": item.cell.id,
                "action": item.action,
                "state": item.state,
                "reason": item.reason,
                "missing": [missing.evaluation.T for missing in item.missing],
                "device_hours": item.hours,
            }
            for item in made.items
        ],
    }


def print_plan(expansions: Sequence[Expansion], made: Plan, *, every_cell: bool = False) -> None:
    """Totals first, then reasons (or every cell), then the cost."""
    from looprepro.planning.sizes import sizes

    names = ", ".join(expansion.sweep.name for expansion in expansions)
    over = f", {' '.join(expansions[0].overrides)}" if expansions[0].overrides else ""
    counts = made.counts
    entries = sum(expansion.entries for expansion in expansions)
    shared = f" (of {entries} entries: equal cells are one)" if entries != made.wanted else ""
    typer.echo(f"{names} at scale {expansions[0].scale}{over}: {made.wanted} cells{shared}")
    rare: tuple[State, ...] = ("diverged", "wait", "needs retraining", "untrained")
    others = [f"{counts[state]} {state}" for state in rare if counts[state]]
    typer.echo("  " + ", ".join([f"{counts['done']} done", f"{len(made.to_run)} to run", *others]))
    typer.echo(f"  evaluations: {made.evaluations_done} of {made.evaluations_wanted} done")
    if every_cell:
        for item in made.items:
            typer.echo(f"  {item.cell.id}  {item.action}: {item.reason}")
    else:
        for (action, reason), n in Counter((item.action, item.reason) for item in made.items).most_common():
            typer.echo(f"  {n:>6} {action}: {reason}")
    for size in sizes(made.items):
        hours = "" if size.hours is None else f", about {device_hours(size.hours)} h a cell"
        gpus = f"{size.ranks} GPUs" if size.ranks > 1 else "1 device"
        typer.echo(
            f"  width {size.width}: {size.parameters:,} parameters, {size.tokens_per_parameter:.3g} tokens each, "
            f"{size.steps:,} steps; {gpus} a cell, {size.memory_bytes / 1e9:.3g} GB each{hours}"
        )
    if made.to_run:
        bases = ", ".join(f"{n} {basis}" for basis, n in made.bases.items())
        if made.packs:
            members = Counter(len(pack) for pack in made.packs)
            typer.echo(f"  packs: {', '.join(f'{n} of {size} seeds' for size, n in sorted(members.items(), reverse=True))}")
        typer.echo(f"  estimated device hours: {device_hours(made.device_hours)}" + (f" ({bases})" if bases else ""))
    if made.needs_retraining:
        say(f"{len(made.needs_retraining)} cells need retraining for a missing evaluation: start them with --retrain")
    say_untrained(made)


def say_untrained(made: Plan) -> None:
    """Which cells another sweep has to train before this one can measure them."""
    for item in made.untrained:
        say(f"untrained: {item.cell.id}")
    if made.untrained:
        say(f"{len(made.untrained)} cells are not trained, and this sweep trains none: run the sweep that they belong to")


def _yaml(expansions: Sequence[Expansion], cell_id: str) -> str:
    import yaml

    from looprepro.files.errors import ConfigError

    for expansion in expansions:
        for planned in expansion.cells:
            if planned.id == cell_id:
                content = planned.cell.model_dump(mode="json")
                content["evaluations"] = [e.evaluation.model_dump(mode="json") for e in planned.evaluations]
                content["execution"] = planned.execution.model_dump(mode="json")
                return str(yaml.safe_dump(content, sort_keys=False))
    raise ConfigError(f"no cell '{cell_id}' among them", "looprepro plan ... --cells lists the ids")
