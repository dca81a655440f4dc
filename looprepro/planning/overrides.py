"""What the command line changes of a sweep: ``key=value``, ``key=1,2,3``, ``--only key=value``, ``--seeds 0-4``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from looprepro.files.errors import ConfigError
from looprepro.planning.keys import leaves, nearest, unknown_key
from looprepro.planning.roles import canonical, is_symbolic
from looprepro.planning.schema import Sweep, parse_seeds

ITEMS = "evaluations.items"
BUDGETS = "evaluations.budgets"


@dataclass(frozen=True)
class Override:
    """One key and its values; more than one multiply the grid as an axis of that name."""

    key: str
    values: tuple[Any, ...]

    @property
    def text(self) -> str:
        """Canonical spelling: equal overrides have equal text ("training.lr=0.001", however it was typed)."""
        return f"{self.key}={','.join(value_text(value) for value in self.values)}"


def parse_overrides(texts: Sequence[str], sweep: Sweep) -> tuple[Override, ...]:
    """Parse and check; sorted by key, so that the order of typing does not matter."""
    found: dict[str, Override] = {}
    for text in texts:
        override = _parse(text, sweep)
        if override.key in found:
            raise ConfigError(f"override '{text}': '{override.key}' is given twice", "Write key=1,2,3 for several values")
        found[override.key] = override
    return tuple(found[key] for key in sorted(found))


def _parse(text: str, sweep: Sweep) -> Override:
    key, equals, right = text.partition("=")
    key, where = key.strip(), f"override '{text}'"
    if not equals or not key or not right.strip():
        raise ConfigError(f"{where} is not of the form key=value", "Example: training.lr=1e-3 or training.lr=1e-3,3e-4")
    if key.startswith("execution.") or key.startswith("scales."):
        raise ConfigError(
            f"{where}: threads, device and compile change rounding and are fixed by the scale",
            f"Change them in {sweep.path}",
        )
    if key in sweep.axes:
        raise ConfigError(f"{where}: '{key}' is an axis of {sweep.name}", f"To select from it use --only {key}=ROLE")
    if key not in leaves() and key not in (ITEMS, BUDGETS):
        raise unknown_key(where, key, (ITEMS, BUDGETS))
    for axis, points in sweep.axes.items():
        if any(key in point.set for point in points):
            raise ConfigError(
                f"{where}: axis '{axis}' of {sweep.name} sets '{key}', so one value would make its points equal",
                f"To select from it use --only {axis}=ROLE",
            )
    parts = split_values(right)
    if key == BUDGETS:
        budgets = tuple(int(part) if part.isdecimal() else canonical(part) for part in parts)
        return Override(key, (budgets,))
    values = tuple(dict.fromkeys(parse_value(key, part, where) for part in parts))
    if key == ITEMS and len(values) > 1:
        raise ConfigError(f"{where}: one number of items serves all cells", "Give one value")
    return Override(key, values)


def split_values(text: str) -> list[str]:
    """Split at commas outside brackets.

    >>> split_values("1,[0.9,0.99],x")
    ['1', '[0.9,0.99]', 'x']
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def parse_value(key: str, text: str, where: str) -> Any:
    """``text`` as the type of ``key``; symbolic values ("d/2") stay text until the cell is known."""
    if is_symbolic(text) if key == ITEMS else leaves()[key].is_symbolic(text):
        return canonical(text)
    try:
        return TypeAdapter(int).validate_python(text) if key == ITEMS else leaves()[key].parse_text(text)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{where}: '{text}' for {key}: {problem}", "Change the value") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: '{text}' is not a list of values", "Example: training.betas=[0.9,0.95]") from error


def value_text(value: Any) -> str:
    """How a value is written in canonical overrides, roles and messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ",".join(map(str, value)) if all(isinstance(v, int | str) for v in value) else json.dumps(list(value))
    return json.dumps(value)


def requested_seeds(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Seeds of ``--seeds``, or of the scale."""
    if text is None:
        return default
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise ConfigError(f"--seeds: {error}", "Example: --seeds 0-4 or --seeds 0,2,5") from error


@dataclass(frozen=True)
class Selection:
    """What ``--only`` keeps: for every key, one of its values."""

    wanted: dict[str, tuple[str, ...]]

    @staticmethod
    def parse(texts: Sequence[str], axes: Iterable[str]) -> Selection:
        """Keys are axis names, "seed", "T" or dotted configuration keys; the same key twice means either value."""
        axes = tuple(axes)
        wanted: dict[str, tuple[str, ...]] = {}
        for text in texts:
            key, equals, right = text.partition("=")
            key = key.strip()
            if not equals or not right.strip():
                raise ConfigError(f"--only '{text}' is not of the form key=value", "Example: --only method=diagonal")
            if key not in (*axes, "seed", "T") and key not in leaves():
                known = (*axes, "seed", "T")
                near = unknown_key("", key).remedy if "." in key else f"Did you mean '{nearest(key, known)}'?"
                raise ConfigError(f"--only '{text}': unknown key '{key}'", f"{near} Axes here: {', '.join(known)}")
            values: Iterable[str] = split_values(right)
            if key == "seed":
                try:
                    values = map(str, parse_seeds(right))
                except ValueError as error:
                    raise ConfigError(f"--only '{text}': {error}", "Example: --only seed=0-4") from error
            elif key not in axes and key != "T":
                values = [value_text(parse_value(key, value, f"--only '{text}'")) for value in values]
            wanted[key] = (*wanted.get(key, ()), *(canonical(value) for value in values))
        return Selection(wanted)

    def check(self, key: str, present: Iterable[str]) -> None:
        """:class:`ConfigError` for a value of ``key`` that nothing has."""
        known = list(dict.fromkeys(present))
        for value in self.wanted.get(key, ()):
            if value not in known:
                raise ConfigError(
                    f"--only {key}={value}: nothing has that value",
                    f"Did you mean '{nearest(value, known)}'? There are: {', '.join(known)}" if known else "Check the others",
                )

    def keeps(self, key: str, *names: str) -> bool:
        """Whether a thing called ``names`` at ``key`` is kept."""
        return key not in self.wanted or any(name in self.wanted[key] for name in names)
