"""``looprepro data``: prepare text and puzzles on disk, and list what is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from looprepro.cli.options import Json, say

app = typer.Typer(
    help="Prepare data sets, from the hub, from files or from what Python ships; list them.", no_args_is_help=True
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME|FILE]...", help="Data sets; with --text, more files.", show_default=False)
]
Text = Annotated[
    list[Path] | None,
    typer.Option("--text", metavar="FILE|FOLDER", help="Text of your own: .txt, .md, .jsonl, .parquet.", show_default=False),
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="A folder below which the data is put [default: data].", show_default=False)
]
Name = Annotated[str | None, typer.Option("--name", help="Under which name [default: the data set's].", show_default=False)]
Tokens = Annotated[str | None, typer.Option("--tokens", help="Training tokens to stop at: 5B, 300M.", show_default=False)]
Vocabulary = Annotated[int | None, typer.Option("--vocabulary", help="Entries of the tokenizer.", show_default=False)]
Tokenizer = Annotated[Path | None, typer.Option("--tokenizer", help="Use this tokenizer.json, train none.", show_default=False)]
Validation = Annotated[
    float | None,
    typer.Option("--validation", min=0.0, max=0.5, help="Share of documents to hold out.", show_default=False),
]
Revision = Annotated[str | None, typer.Option("--revision", help="Commit of the hub's data set.", show_default=False)]
Subset = Annotated[str | None, typer.Option("--subset", help="Configuration of the hub's data set.", show_default=False)]
Sequence = Annotated[
    int | None,
    typer.Option("--sequence", min=2, help="Also plan text into rows of this many tokens.", show_default=False),
]


@app.command("prepare")
def prepare(
    names: Names = None,
    text: Text = None,
    out: Out = None,
    name: Name = None,
    tokens: Tokens = None,
    vocabulary: Vocabulary = None,
    tokenizer: Tokenizer = None,
    validation: Validation = None,
    revision: Revision = None,
    subset: Subset = None,
    sequence: Sequence = None,
) -> None:
    """Prepare data sets. Stopped and called again, it goes on after the last complete shard."""
    from looprepro.data.catalog import Options, entry
    from looprepro.files.errors import ConfigError
    from looprepro.files.places import data_root

    root = out or data_root()
    options = Options(None if tokens is None else amount(tokens), vocabulary, tokenizer, validation, revision, subset)
    if text:
        from looprepro.data.text import prepare_files

        paths = [*text, *map(Path, names or ())]
        folder = root / (name or text[0].stem)
        typer.echo(f"{folder}: {prepare_files(paths, folder, options, say)}")
        plan_rows(folder, sequence)
        return
    if not names:
        raise ConfigError("no data set named", "Name one (looprepro data list shows them) or give --text FILES")
    if name is not None and len(names) > 1:
        raise ConfigError("--name renames one data set", "Prepare them one by one")
    for known, chosen in [(entry(given), given) for given in names]:
        folder = root / (name or chosen)
        typer.echo(f"{folder}: {known.prepare(folder, options, say)}")
        plan_rows(folder, sequence)


@app.command("list")
def list_data(as_json: Json = False) -> None:
    """What can be prepared, and what is there."""
    from looprepro.data.catalog import CATALOG, MANIFEST, found
    from looprepro.files.json_files import read_json

    there = {name: (folder, read_json(folder / MANIFEST)) for name, folder in found().items()}
    if as_json:
        document = {
            "prepared": {name: {"folder": str(folder), "manifest": manifest} for name, (folder, manifest) in there.items()},
            "known": {name: known.summary for name, known in CATALOG.items()},
        }
        typer.echo(json.dumps(document, indent=2))
        return
    for name, (folder, manifest) in there.items():
        typer.echo(f"{name:<16} {describe(folder, manifest)}")
    for name, known in CATALOG.items():
        if name not in there:
            typer.echo(f"{name:<16} not prepared: {known.summary}")
    sys.stdout.flush()


def plan_rows(folder: Path, sequence: int | None) -> None:
    """Plan the rows of a text corpus, keep the plan beside it, and say how much of them is padding."""
    if sequence is None:
        return
    from looprepro.config.corpus import read_manifest
    from looprepro.config.tasks import LanguageTask
    from looprepro.tasks.language import Corpus, LanguageRows

    config = LanguageTask(data=f"{folder}/", vocabulary=read_manifest(folder).vocabulary, sequence=sequence)
    task = LanguageRows(config, 0, Corpus(folder))
    task.keep_plans()
    plan = task.packing
    padding = f"{plan.padding_share:.4%} padding"
    typer.echo(f"{folder}: {plan.rows:,} rows of {sequence:,} tokens, {padding}; {plan.cut:,} documents cut in two")


def describe(folder: Path, manifest: object) -> str:
    """One line on a prepared folder."""
    if isinstance(manifest, dict) and manifest.get("kind") == "language":
        from looprepro.config.corpus import read_manifest
        from looprepro.data.text import summary

        return f"{summary(read_manifest(folder))}  ({folder})"
    summary_line = manifest.get("summary") if isinstance(manifest, dict) else None
    return f"{summary_line or 'prepared'}  ({folder})"


def amount(text: str) -> int:
    """A number of tokens: 5B, 300M, 20k or digits. :class:`ConfigError` otherwise.

    >>> amount("1.2B")
    1200000000
    """
    from looprepro.files.errors import ConfigError

    scale = {"k": 1e3, "m": 1e6, "b": 1e9}.get(text[-1:].lower(), 1.0)
    digits = text[:-1] if scale != 1.0 else text
    try:
        value = round(float(digits.replace("_", "").replace(",", "")) * scale)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"'{text}' is not a number of tokens", "Write --tokens 5B, 300M or 20000") from error
    if value < 1:
        raise ConfigError(f"'{text}' tokens are too few", "Write --tokens 5B, 300M or 20000")
    return value
