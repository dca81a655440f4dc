"""What a sweep file may contain. Unknown keys are errors that name file, line, key and the nearest valid key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator

from looprepro.config.cell import Execution, Frozen
from looprepro.files.errors import ConfigError
from looprepro.files.yaml_files import Document, KeyPath
from looprepro.planning.keys import nearest
from looprepro.planning.roles import canonical

ScaleName = Literal["smoke", "mini", "paper"]


class Point(Frozen):
    """One value of an axis: a row or column of the table."""

    role: str = Field(min_length=1)
    """What it means at every scale: "diagonal", "G=2", "d/2"."""
    label: str | None = None
    """How it is printed; "{model.injection.groups}" is replaced by the resolved value. Default: the role."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Configuration keys and values; a value may be symbolic ("d/2")."""


class Combination(Frozen):
    """What holds where several axes meet: settings that no single axis can make. Empty places are ``skip``."""

    of: dict[str, str] = Field(min_length=1)
    """Axis -> role."""
    set: dict[str, Any] = Field(min_length=1)
    """Configuration keys and values; they replace what the axes set."""


class Evaluations(Frozen):
    """What is measured on every cell's weights."""

    budgets: tuple[int | str, ...] = Field(min_length=1)
    """T, as numbers or roles: "T_max/2", "T_max", "3T_max/2"."""
    items: int = Field(ge=1)
    """Evaluation words per budget."""


class EvaluationsOverlay(Frozen):
    """What a scale changes of the evaluations."""

    budgets: tuple[int | str, ...] | None = Field(None, min_length=1)
    items: int | None = Field(None, ge=1)


class Layout(Frozen):
    """How the numbers are arranged."""

    rows: tuple[str, ...] = Field(min_length=1)
    """Axes that make the rows."""
    columns: tuple[str, ...] = ()
    """Axes that make the columns, outermost first; "T" is the axis of budgets."""
    metric: str
    decimals: int = Field(3, ge=0)
    beside: tuple[str, ...] = ()
    """Other metrics of the same evaluations that a note under the table names: what a number must be compared with."""


class Scale(Frozen):
    """An overlay on the sweep: the same table, smaller."""

    note: str = Field(min_length=1)
    """One line: what this scale shows and what it does not show."""
    title: str | None = None
    """The table's title at this scale, where it is not the sweep's."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Written "0-9", "0,2,5", a number or a list."""
    set: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, tuple[Point | str, ...]] = Field(default_factory=dict)
    """Axes replaced as a whole; a bare role takes over the sweep's own point."""
    combinations: tuple[Combination, ...] | None = None
    """Instead of the sweep's; None: the sweep's."""
    skip: tuple[dict[str, tuple[str, ...]], ...] = ()
    """Combinations left out at this scale, besides the sweep's; "seed" may be named like an axis (not with --seeds)."""
    evaluations: EvaluationsOverlay = EvaluationsOverlay()
    execution: Execution = Execution()

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        return parse_seeds(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


class SweepFile(Frozen):
    """Which cells a table or figure needs, how they are laid out, and at which scales."""

    name: str
    """The file's name without .yaml, and the argument of the command line."""
    title: str
    place: str
    """Where it stands in the paper: "Table 1"."""
    paper: str
    """Whose numbers stand beside ours: sweeps/reference/<paper>.yaml."""
    kind: Literal["table", "figure"]
    trains: bool = True
    """False: it measures cells that other sweeps train, and names those that are not there."""
    base: dict[str, Any]
    """The configuration of every cell; scales, then axes, then overrides replace its values."""
    axes: dict[str, tuple[Point, ...]] = Field(min_length=1)
    combinations: tuple[Combination, ...] = ()
    skip: tuple[dict[str, tuple[str, ...]], ...] = ()
    """Combinations that the table does not have: axis -> roles. Left out where every axis named has a listed role."""
    evaluations: Evaluations
    layout: Layout
    scales: dict[ScaleName, Scale] = Field(min_length=1)


class Sweep(SweepFile):
    """A sweep file that was read and checked, with the line of every key."""

    _document: Document = PrivateAttr()

    def roles(self, axis: str) -> list[str]:
        """Canonical roles of the points of ``axis``, those that only some scale has included."""
        own = (item for overlay in self.scales.values() for item in overlay.axes.get(axis, ()) if isinstance(item, Point))
        return [canonical(point.role) for point in (*self.axes[axis], *own)]

    @property
    def document(self) -> Document:
        """The YAML document, for errors that name a line."""
        return self._document

    @property
    def path(self) -> Path:
        """Where it was read from."""
        return self._document.path

    def scale(self, name: str) -> Scale:
        """The overlay ``name``; :class:`ConfigError` with the nearest and the list where the sweep has none."""
        for known, overlay in self.scales.items():
            if known == name:
                return overlay
        raise ConfigError(
            f"sweep {self.name} has no scale '{name}'",
            f"Did you mean '{nearest(name, self.scales)}'? It has {', '.join(self.scales)}",
        )

    def title_at(self, scale: str) -> str:
        """The table's title at ``scale``."""
        return self.scale(scale).title or self.title

    def skips(self, scale: str, roles: Mapping[str, str]) -> bool:
        """Whether the table leaves the combination ``roles`` (axis, and perhaps "seed" -> canonical role) out at ``scale``."""
        return any(
            all(axis in roles and roles[axis] in map(canonical, listed) for axis, listed in combination.items())
            for combination in (*self.skip, *self.scale(scale).skip)
        )


LARGEST_SEED = 2**31 - 1
MOST_SEEDS = 100_000
"""Of one sweep: more are a slip of the keyboard, and would not fit into memory as cells."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds in the order written, each once. ``ValueError`` on anything that is not "0-4", "0,2,5" or a mixture, and above
    :data:`LARGEST_SEED`.

    >>> parse_seeds("0-3,7")
    (0, 1, 2, 3, 7)
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ValueError(f"seeds '{text}' are not of the form 0-4 or 0,2,5")
        if int(match[2] or match[1]) > LARGEST_SEED:
            raise ValueError(f"seeds '{text}' go beyond {LARGEST_SEED}")
        if len(seeds) + int(match[2] or match[1]) - int(match[1]) >= MOST_SEEDS:
            raise ValueError(f"seeds '{text}' are more than {MOST_SEEDS}")
        seeds |= dict.fromkeys(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(seeds)


def read_sweep(document: Document) -> Sweep:
    """The schema part of reading a sweep: structure and types. What needs the cell's models is checked by the catalog."""
    if not isinstance(document.value, dict):
        raise ConfigError(f"{document.path}:1: a sweep file is a mapping of keys", "See sweeps/table1.yaml")
    try:
        sweep = Sweep.model_validate(document.value)
    except ValidationError as error:
        raise _schema_error(error, document) from error
    sweep._document = document
    return sweep


def _schema_error(error: ValidationError, document: Document) -> ConfigError:
    """The first error, unknown keys before all others since they are most often the cause of the rest."""
    problems = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    problem = problems[0]
    keys = _key_path(document.value, problem["loc"])
    where = f"{document.path}:{document.line(keys)}"
    name = ".".join(map(str, keys))
    if problem["type"] == "extra_forbidden":
        model = _model_at(problem["loc"][:-1])
        return ConfigError(f"{where}: unknown key '{name}'", f"Did you mean '{nearest(str(keys[-1]), model.model_fields)}'?")
    if problem["loc"][-1] == "[key]":
        valid = get_args(ScaleName)
        return ConfigError(
            f"{where}: unknown scale '{keys[-1]}'", f"Did you mean '{nearest(str(keys[-1]), valid)}'? Use {', '.join(valid)}"
        )
    if problem["type"] == "missing":
        return ConfigError(f"{where}: key '{name}' is missing", "Add it; sweeps/table1.yaml is a complete example")
    if problem["type"] == "tuple_type":
        given = problem["input"]
        if isinstance(given, str | int | float):
            return ConfigError(f"{where}: '{name}' is {given}, and a list is needed", f"Write {keys[-1]}: [{given}]")
        return ConfigError(f"{where}: '{name}' is no list", "Write one entry a line, each behind a dash, or [first, second]")
    message = problem["msg"].removeprefix("Value error, ")
    return ConfigError(f"{where}: '{name}': {message}", "Change the value there")


def _key_path(value: Any, location: tuple[int | str, ...]) -> KeyPath:
    """``location`` without the names that pydantic adds for the member of a union."""
    path: list[int | str] = []
    for index, part in enumerate(location):
        known = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if known:
            value = value[part]
            path.append(part)
        elif index == len(location) - 1 and isinstance(value, dict) and part not in ("str", "int", "Point", "[key]"):
            path.append(part)
    return tuple(path)


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that forbids unknown keys at ``location`` of a sweep file."""
    match location:
        case ("scales", _, "evaluations"):
            return EvaluationsOverlay
        case ("scales", _, "execution"):
            return Execution
        case ("scales", _):
            return Scale
        case ("evaluations",):
            return Evaluations
        case ("layout",):
            return Layout
        case ("combinations", _) | ("scales", _, "combinations", _):
            return Combination
        case ("axes", _, _) | ("scales", _, "axes", _, _, *_):
            return Point
    return SweepFile
