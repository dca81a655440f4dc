"""``looprepro score``: what a submission.json is worth by ARC's public rule."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from looprepro.cli.options import Json, say

Submission = Annotated[
    Path, typer.Argument(metavar="FILE", help='{"task id": [{"attempt_1": grid, "attempt_2": grid}, ...], ...}')
]
Data = Annotated[str, typer.Option("--data", help="arc1 or arc2: whose evaluation tasks it answers.")]
Partial = Annotated[bool, typer.Option("--partial", help="Score the tasks it answers alone.")]


def score(submission: Submission, data: Data, partial: Partial = False, as_json: Json = False) -> None:
    """Score answers to ARC's evaluation tasks: two attempts per test input, either may be right, no partial credit."""
    from looprepro.config.puzzles import ARC_FILES
    from looprepro.files.errors import ConfigError
    from looprepro.planning.keys import nearest
    from looprepro.tasks.puzzles.arc_tasks import load_arc, read_submission, score_submission

    if data not in ARC_FILES:
        close = nearest(data, list(ARC_FILES))
        raise ConfigError(f"unknown data '{data}'", f"Did you mean '{close}'? Use {' or '.join(ARC_FILES)}")
    answers = read_submission(submission)
    _, puzzles = load_arc(data)
    found = score_submission(answers, puzzles, partial=partial)
    if as_json:
        numbers = asdict(found) | {"by_input": found.by_input}
        typer.echo(json.dumps({"data": data, "tasks": len(answers), "all_tasks": len(puzzles)} | numbers, indent=2))
        return
    typer.echo(f"by_input  {found.by_input:.6g}  ({found.solved} of {found.inputs} test inputs solved: Kaggle's score)")
    typer.echo(f"by_task  {found.by_task:.6g}  (mean over {len(answers)} tasks: the metric score of the tables)")
    if len(answers) < len(puzzles):
        say(f"{len(answers)} of the {len(puzzles)} evaluation tasks of {data}: no number of the benchmark")
