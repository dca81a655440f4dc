"""``looprepro train``: one cell from a YAML file, in the foreground, for debugging."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from looprepro.cli.options import RUNS, Runs, say

CellFile = Annotated[
    Path, typer.Argument(metavar="CELL.yaml", help="A resolved cell: looprepro plan SWEEP --cell ID prints one.")
]
PARTS = ("evaluations", "execution")
"""Keys of the file beside those of the cell itself."""


def train(cell_file: CellFile, runs: Runs = RUNS) -> None:
    """Train and evaluate one cell here and now, its output on this terminal. Resumes where an earlier attempt stopped."""
    from pydantic import ValidationError

    from looprepro.cli.required_data import prepare_required
    from looprepro.config.cell import Cell, Execution, parse_evaluation, without_kinds
    from looprepro.config.identity import cell_id, evaluation_id
    from looprepro.files.errors import ConfigError
    from looprepro.files.yaml_files import read_yaml
    from looprepro.launch.base import Work, manifest_of
    from looprepro.store import Store
    from looprepro.worker import run_manifest

    document = read_yaml(cell_file)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{cell_file} is not a cell", "looprepro plan SWEEP --cell ID prints one")
    content: dict[str, Any] = dict(document.value)
    try:
        execution = Execution.model_validate(content.pop("execution", {}))
        evaluations = [parse_evaluation(item) for item in content.pop("evaluations", [])]
        cell = Cell.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = without_kinds(first["loc"])
        where = f"{cell_file}:{document.line(key)}"
        raise ConfigError(
            f"{where}: {'.'.join(map(str, key))}: {first['msg']}", "looprepro plan SWEEP --cell ID prints a valid cell"
        ) from error
    identity = cell_id(cell)
    say(f"cell {identity}")
    prepare_required([cell], evaluations)
    wanted = tuple((evaluation_id(e), e.model_dump(mode="json")) for e in evaluations)
    store = Store(runs)
    work = [Work(identity, cell.model_dump(mode="json"), wanted, execution)]
    code = run_manifest(manifest_of(store, work, store.highest_attempts([identity])), redirect=False)
    reading = store.reading(identity)
    for evaluation in evaluations:
        measured = reading.evaluations.get(evaluation_id(evaluation))
        for name, count in sorted(measured["metrics"].items()) if measured else ():
            typer.echo(f"T={evaluation.T}  {name}  {count['value']:.6g}  ({count['items']} items)")
    known = reading.presence
    say(known.status if known.status == "done" or not known.cause else f"{known.status}: {known.cause}")
    if code or not known.complete(name for name, _ in wanted):
        raise typer.Exit(code or 1)
