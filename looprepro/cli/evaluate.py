"""``looprepro eval``: measure a trained cell at further budgets or with other settings; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from looprepro.cli.options import RUNS, Json, Runs, say

if TYPE_CHECKING:
    from looprepro.config.cell import Cell, Evaluation, Execution
    from looprepro.store import CellRecord, Store

What = Annotated[str, typer.Argument(metavar="CELL", help="The id of a trained cell; its start is enough.")]
Wanted = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="T=1,8,16 and other settings of the evaluation: items=256, draws=3 [default: those it was measured with].",
        show_default=False,
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option("--tasks", help="Of a language model: perplexity, last_word, lambada, geometry.", show_default=False),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Threads = Annotated[int, typer.Option("--threads", min=1, help="CPU threads.")]
Submission = Annotated[
    Path | None,
    typer.Option("--submission", metavar="FILE", help="Of ARC: write the answers as submission.json.", show_default=False),
]


def evaluate(
    what: What,
    wanted: Wanted = None,
    tasks: Tasks = None,
    submission: Submission = None,
    device: Device = "auto",
    threads: Threads = 1,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Measure a trained cell again, at any T; numbers join its others and the next collect finds them.

    With --submission, the answers of an ARC cell as Kaggle reads them; looprepro score scores such a file.
    """
    from looprepro.cli.cells import cell_of, check_trained, matching_cell, trained_weights
    from looprepro.cli.required_data import prepare_required
    from looprepro.config.cell import Execution
    from looprepro.config.identity import evaluation_id
    from looprepro.launch.base import Work, manifest_of
    from looprepro.store import Store
    from looprepro.worker import run_manifest

    store = Store(runs)
    name = matching_cell(store, what)
    record = next(iter(store.records([name])))
    check_trained(record)
    cell = cell_of(record)
    evaluations = {evaluation_id(one): one for one in asked_for(cell, record, wanted or (), tasks)}
    if submission is not None:
        _submittable(cell, evaluations)
    missing = {known: one for known, one in evaluations.items() if known not in record.evaluations}
    code = 0
    execution = Execution.model_validate({"device": device, "threads": threads})
    if missing:
        trained_weights(store, record)
        prepare_required([cell], missing.values())
        asked = tuple((known, one.model_dump(mode="json")) for known, one in missing.items())
        work = [Work(name, cell.model_dump(mode="json"), asked, execution)]
        code = run_manifest(manifest_of(store, work, store.highest_attempts([name])))
        record = next(iter(store.records([name])))
    _request(store, name, {known: one for known, one in evaluations.items() if known in record.evaluations})
    found = {known: record.evaluations.get(known) for known in evaluations}
    if as_json:
        typer.echo(json.dumps({"cell": name, "evaluations": found}, indent=2))
    else:
        for document in found.values():
            _print(document)
    if code or None in found.values():
        last = store.reading(name).highest
        say(f"{name}: {last.cause if last and last.cause else 'not everything was measured'} (looprepro logs {name})")
        raise typer.Exit(code or 1)
    if submission is not None:
        for known, one in evaluations.items():
            _write_submission(submission, store, record, known, one, execution)


def asked_for(cell: Cell, record: CellRecord, wanted: Iterable[str], tasks: str | None) -> list[Evaluation]:
    """The evaluations of the command line: what it leaves open is as the cell was measured before, else the default."""
    from pydantic import ValidationError

    from looprepro.config.evaluations import EVALUATIONS
    from looprepro.files.errors import ConfigError
    from looprepro.planning.keys import nearest

    model = EVALUATIONS[cell.family]
    before = [document["evaluation"] for _, document in sorted(record.evaluations.items())]
    settings: dict[str, Any] = dict(before[0]) if before else {}
    budgets: list[Any] = sorted({one["T"] for one in before})
    for text in wanted:
        key, equals, value = text.partition("=")
        if not equals or not value or key not in model.model_fields or key == "kind":
            keys = [name for name in model.model_fields if name != "kind"]
            raise ConfigError(
                f"'{text}' is no setting of this evaluation",
                f"Did you mean '{nearest(key, keys)}'? There are: {', '.join(keys)}",
            )
        if key == "T":
            budgets = value.split(",")
        else:
            settings[key] = None if value in ("null", "None") else value.split(",") if key == "metrics" else value
    if tasks is not None:
        if "metrics" not in model.model_fields:
            raise ConfigError("--tasks belongs to language models", "Leave it out: this cell has one kind of measurement")
        settings["metrics"] = tasks.split(",")
    if not budgets:
        raise ConfigError("no budget named", "Write T=8,16")
    try:
        return [model.model_validate(settings | {"T": budget}) for budget in dict.fromkeys(budgets)]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {first['msg']}", "Change the setting") from error


def _submittable(cell: Cell, evaluations: Mapping[str, Evaluation]) -> None:
    """:class:`ConfigError` unless the answers are one submission."""
    from looprepro.files.errors import ConfigError

    if cell.task.kind != "arc":
        raise ConfigError(f"--submission belongs to ARC, and this cell's task is {cell.task.kind}", "Leave it out")
    if len(evaluations) > 1:
        budgets = [one.T for one in evaluations.values()]
        raise ConfigError(f"a submission has one T, and this names {len(budgets)}", f"Write T={budgets[-1]}")


def _write_submission(
    path: Path, store: Store, record: CellRecord, known: str, evaluation: Evaluation, execution: Execution
) -> None:
    """The answers that the evaluation kept; answered once more where it is older than that."""
    from looprepro.cli.cells import cell_of, trained_weights
    from looprepro.files.atomic import write_text
    from looprepro.files.json_files import canonical_json, read_json

    kept = store.layout.submission(record.id, known)
    if kept.is_file():
        answers = read_json(kept)
    else:
        from looprepro.training.run import measured_again

        weights = trained_weights(store, record)
        say("this evaluation was made before answers were kept: answering again")
        answers = measured_again(cell_of(record), evaluation, execution, weights)["submission"]
    write_text(path, canonical_json(answers) + "\n")
    say(f"{path}: answers to {len(answers)} tasks (looprepro score {path} --data {record.config['task']['version']})")


def _request(store: Store, name: str, evaluations: dict[str, Evaluation]) -> None:
    """Ask for the numbers in every place that the cell has, so that collect finds them; a role of their own keeps them out of
    the tables' columns. A number that any request of the sweep asked for keeps its role."""
    from typing import get_args

    from looprepro.files.json_files import canonical_json
    from looprepro.planning.schema import ScaleName

    for scale in get_args(ScaleName):
        places: dict[str, dict[str, Any]] = {}
        known: dict[str, set[str]] = {}
        for request in store.requests(scale):
            where = {key: request[key] for key in ("sweep", "scale", "overrides")}
            for cell in request["cells"]:
                if cell["id"] == name:
                    place = canonical_json([where, cell["axes"]])
                    places[place] = where | {"cells": [cell]}
                    known.setdefault(place, set()).update(e["id"] for e in cell["evaluations"])
        for place, request in places.items():
            new = {k: e for k, e in evaluations.items() if k not in known[place]}
            if new:
                more = [{"id": k, "role": f"eval {k}", "T": e.T} for k, e in new.items()]
                store.record_request(request | {"cells": [request["cells"][0] | {"evaluations": more}]})


def _print(document: Any) -> None:
    if document is None:
        return
    T = document["evaluation"]["T"]
    for metric, count in sorted(document["metrics"].items()):
        note = "  stand-in made from the corpus, not LAMBADA" if metric.startswith("last_word") else ""
        typer.echo(f"T={T}  {metric}  {count['value']:.6g}  ({count['items']} items){note}")
