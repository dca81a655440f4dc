"""Options that several commands share, and how they speak: stdout is data, stderr is talk."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

if TYPE_CHECKING:
    from looprepro.planning import Expansion, Sweep

DEFAULT_SCALE = "smoke"


def sweep_names() -> list[str]:
    """For shell completion: a directory listing, nothing else."""
    from looprepro.planning.catalog import available_sweeps

    return available_sweeps()


Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SWEEP|KEY=VALUE]...",
        help="Sweeps by name or path, and overrides: training.lr=3e-4; a,b,c makes an axis.",
        autocompletion=sweep_names,
        show_default=False,
    ),
]
Target = Annotated[str, typer.Argument(metavar="SWEEP", help="A sweep by name or path.", autocompletion=sweep_names)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="The overrides it was run with.", show_default=False)
]
Every = Annotated[bool, typer.Option("--all", help="Every sweep that has the scale.")]
Scale = Annotated[str | None, typer.Option("--scale", "-s", help="smoke, mini or paper [default: smoke].", show_default=False)]
Seeds = Annotated[str | None, typer.Option("--seeds", help="0-4 or 0,2,5, instead of the scale's.", show_default=False)]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="KEY=VALUE", help="Keep what this names: method=diagonal.", show_default=False),
]
Runs = Annotated[Path, typer.Option("--runs", envvar="LOOPREPRO_RUNS", help="Where cells run and keep their files.")]
ResultsFolder = Annotated[Path, typer.Option("--results", envvar="LOOPREPRO_RESULTS", help="Where collected results live.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Pack = Annotated[
    str | None,
    typer.Option(
        "--pack",
        help="seeds: train cells that differ only in their seed as one; none [default: the scale's].",
        show_default=False,
    ),
]
RUNS, RESULTS = Path("runs"), Path("results")


def say(line: str) -> None:
    """One line of talk on stderr."""
    print(line, file=sys.stderr, flush=True)


def split_targets(targets: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """(sweeps, overrides) of one argument list."""
    given = list(targets or ())
    return [text for text in given if "=" not in text], [text for text in given if "=" in text]


def chosen_scale(scale: str | None, expansions: Sequence[Expansion] = ()) -> str:
    """The scale asked for, or smoke with one line on what that shows and how to ask for more."""
    if scale is None and expansions:
        sweep = expansions[0].sweep
        more = " or ".join(name for name in sweep.scales if name != DEFAULT_SCALE)
        say(
            f"scale {DEFAULT_SCALE}: {sweep.scale(DEFAULT_SCALE).note}"
            + (f" Ask for more with --scale {more}." if more else "")
        )
    elif scale is None:
        say(f"scale {DEFAULT_SCALE}: shows that the path works, no more. Ask for more with --scale mini or paper.")
    return scale or DEFAULT_SCALE


def known_scale(scale: str | None) -> str:
    """As :func:`chosen_scale`, for a command without a sweep. :class:`ConfigError` where no sweep can have that scale."""
    from looprepro.files.errors import ConfigError
    from looprepro.planning.keys import nearest
    from looprepro.planning.schema import ScaleName

    scales = get_args(ScaleName)
    if scale is not None and scale not in scales:
        raise ConfigError(f"unknown scale '{scale}'", f"Did you mean '{nearest(scale, scales)}'? Use {', '.join(scales)}")
    return chosen_scale(scale)


@cache
def _left_out(line: str) -> None:
    """Once in a process."""
    say(f"left out: {line}")


def readable_sweeps(names: Iterable[str]) -> Iterator[Sweep]:
    """The sweeps that can be read. One that cannot, such as a user's own whose operator is elsewhere, is named on stderr."""
    from looprepro.files.errors import ConfigError
    from looprepro.planning import load_sweep

    for name in names:
        try:
            yield load_sweep(name)
        except ConfigError as error:
            _left_out(str(error))


def expansions_of(
    targets: Sequence[str] | None,
    every: bool,
    scale: str | None,
    only: Sequence[str] | None,
    seeds: str | None,
    *,
    all_if_none: bool = False,
    lenient: bool = False,
) -> list[Expansion]:
    """The sweeps asked for, expanded. :class:`ConfigError` where none is named and ``all_if_none`` is false.

    ``lenient``: of all sweeps, those that can be read; else one that cannot is an error.
    """
    from looprepro.files.errors import ConfigError
    from looprepro.planning import available_sweeps, expand, load_sweep, stated_of

    names, overrides = split_targets(targets)
    wanted = scale or DEFAULT_SCALE
    if every or (all_if_none and not names):
        loaded = list(readable_sweeps(available_sweeps()) if lenient else map(load_sweep, available_sweeps()))
        sweeps = [sweep for sweep in loaded if wanted in sweep.scales]
        if not sweeps:
            known = sorted({known for sweep in loaded for known in sweep.scales})
            raise ConfigError(f"no sweep has the scale '{wanted}'", f"There are: {', '.join(known)}")
    elif not names:
        raise ConfigError("no sweep named", "Name one (looprepro list shows them) or give --all")
    else:
        sweeps = [load_sweep(name) for name in dict.fromkeys(names)]
        for sweep in sweeps:
            stated_of(sweep)  # found before anything runs, not when the table is printed
    found = [expand(sweep, wanted, overrides=overrides, only=only or (), seeds=seeds) for sweep in sweeps]
    chosen_scale(scale, found)
    return found


def checked_pack(pack: str | None) -> str | None:
    """``--pack`` as given. :class:`ConfigError` where it is unknown."""
    from looprepro.files.errors import ConfigError

    if pack not in (None, "seeds", "none"):
        raise ConfigError(f"unknown pack '{pack}'", "Use seeds or none")
    return pack


def duration(seconds: float) -> str:
    """Seconds for people: 42 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def device_hours(hours: float | None) -> str:
    """Device hours with three significant digits; "unknown" for None."""
    return "unknown" if hours is None else f"{hours:.3g}"
