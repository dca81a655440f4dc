"""The ``looprepro`` program: its commands, and one place that turns errors into one line and an exit code.

Exit codes: 0 complete; 1 ran but incomplete, or a check failed; 2 usage or configuration error, nothing submitted;
3 scheduler unreachable; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from looprepro.cli import (
    cancel,
    claims,
    collect,
    data,
    evaluate,
    gc,
    geometry,
    listing,
    logs,
    plan,
    plot,
    repeat,
    report,
    score,
    status,
    sweep,
    table,
    train,
)
from looprepro.cli.options import say
from looprepro.files.errors import LoopreproError

app = typer.Typer(
    name="looprepro",
    help="Reproduce the tables of two papers on looped transformers: sweep, collect, table, plot.",
    epilog="First steps: looprepro list; looprepro sweep table1; looprepro collect; looprepro table table1",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from looprepro import __version__

        typer.echo(f"looprepro {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of every command."""
    if debug:
        os.environ["LOOPREPRO_DEBUG"] = "1"


RUN, LOOK, KEEP = "Run", "Look", "Keep house"
app.command("list", rich_help_panel=LOOK)(listing.list_sweeps)
app.command("plan", rich_help_panel=RUN)(plan.plan)
app.command("sweep", rich_help_panel=RUN)(sweep.sweep)
app.command("train", rich_help_panel=RUN)(train.train)
app.command("eval", rich_help_panel=RUN)(evaluate.evaluate)
app.command("repeat", rich_help_panel=RUN)(repeat.repeat)
app.command("cancel", rich_help_panel=RUN)(cancel.cancel)
app.command("logs", rich_help_panel=LOOK)(logs.logs)
app.command("status", rich_help_panel=LOOK)(status.status)
app.command("collect", rich_help_panel=LOOK)(collect.collect)
app.command("table", rich_help_panel=LOOK)(table.table)
app.command("plot", rich_help_panel=LOOK)(plot.plot)
app.command("claims", rich_help_panel=LOOK)(claims.claims)
app.command("report", rich_help_panel=LOOK)(report.report)
app.command("score", rich_help_panel=LOOK)(score.score)
app.command("geometry", rich_help_panel=LOOK)(geometry.geometry)
app.add_typer(data.app, name="data", rich_help_panel=RUN)
app.command("gc", rich_help_panel=KEEP)(gc.gc)


def _call() -> None:
    """The program; a reader that left is BrokenPipeError, which typer would turn into exit code 1."""
    try:
        app()
    except SystemExit as ended:
        sys.stdout.flush()
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise


def run() -> None:
    """What the console script calls (looprepro/__main__.py, where Ctrl-C ends it, too)."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        _call()
    except LoopreproError as error:
        if os.environ.get("LOOPREPRO_DEBUG"):
            raise
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output (head, less) has left: not an error. Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # met while reading; whoever writes explains it at the place
        if os.environ.get("LOOPREPRO_DEBUG"):
            raise
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        say(f"error: {what}. Check the path and its permissions, or choose another folder with --runs or --results")
        sys.exit(1)
