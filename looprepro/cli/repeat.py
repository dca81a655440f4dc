"""``looprepro repeat``: train a collected cell anew and compare every number with the collected one."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RESULTS, Json, ResultsFolder, Scale, known_scale, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from looprepro.analysis.repeat import Comparison, Recorded
    from looprepro.store import Store

What = Annotated[
    str | None,
    typer.Argument(metavar="[CELL]", help="The id of a collected cell; its start is enough. One drawn at random if left out."),
]
Keep = Annotated[
    Path | None, typer.Option("--keep", help="A new folder for the repetition [default: a temporary one, removed].")
]


def repeat(
    what: What = None, scale: Scale = None, results: ResultsFolder = RESULTS, keep: Keep = None, as_json: Json = False
) -> None:
    """Train a collected cell again, elsewhere, and compare its numbers and curves bit for bit. Changes no result.

    Exit code 1 where anything differs; what differs of the machine, the packages or the code is named then too.
    """
    from looprepro.analysis.repeat import compare, recorded
    from looprepro.files.errors import ConfigError, StoreError
    from looprepro.store import Store

    wanted = known_scale(scale)
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"{keep} is not empty", "A repetition starts from nothing: choose a new folder")
    chosen = recorded(results, wanted, what)
    folder = keep or Path(tempfile.mkdtemp(prefix="looprepro-repeat-"))
    try:
        store = Store(folder)
        code = _run(store, chosen)
        first = next(iter(store.records([chosen[0].id])), None)
        known = store.presence([chosen[0].id])[chosen[0].id]
        if code == 130:
            raise typer.Exit(130)
        if first is None or not known.complete(chosen[0].evaluations):
            why = f"{known.status}: {known.cause}" if known.cause else known.status
            raise StoreError(f"the repetition of {chosen[0].id} did not finish ({why})", "Run the command again")
        found = compare(chosen[0], first)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(_document(found), indent=2))
    else:
        _print(found)
    if code or found.different:
        raise typer.Exit(code or 1)


def _run(store: Store, cells: Sequence[Recorded]) -> int:
    from looprepro.cli.progress import display
    from looprepro.cli.required_data import prepare_required
    from looprepro.config.cell import Cell, Execution, parse_evaluation
    from looprepro.config.costs import evaluation_steps, total_steps
    from looprepro.launch.base import Work
    from looprepro.launch.local import LocalExecutor

    parsed = [Cell.model_validate(cell.config) for cell in cells]
    evaluations = [parse_evaluation(e) for e in cells[0].evaluations.values()]
    prepare_required(parsed, evaluations)
    work = [
        Work(
            cell.id,
            cell.config,
            tuple(cell.evaluations.items()) if cell is cells[0] else (),
            Execution.model_validate(cell.execution),
            total_steps(one),
            cell.pack,
            evaluation_steps(one, evaluations) if cell is cells[0] else 0.0,
        )
        for cell, one in zip(cells, parsed, strict=True)
    ]
    say(f"repeating {cells[0].id}" + (f" with the {len(cells) - 1} others of its stack" if len(cells) > 1 else ""))
    code = 0
    with display(work) as shown:
        for progress in LocalExecutor(1).run(store, work):
            shown.show(progress)
            code = progress.exit_code
    return code


def _document(found: Comparison) -> dict[str, object]:
    return {
        "cell": found.id,
        "equal": found.equal,
        "different": [
            {"of": of, "name": name, "recorded": before, "repeated": after}
            for (of, name), (before, after) in found.different.items()
        ],
        "environment": {name: {"recorded": a, "here": b} for name, (a, b) in found.environment.items()},
    }


def _print(found: Comparison) -> None:
    total = found.equal + len(found.different)
    typer.echo(f"{found.id}: {found.equal} of {total} numbers and curves are the same, bit for bit")
    for (of, name), (before, after) in found.different.items():
        typer.echo(f"  {of} {name}: {before} was collected, {after} now")
    for name, (before, after) in found.environment.items():
        typer.echo(f"  other {name}: {before} then, {after} here")
