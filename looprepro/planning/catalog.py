"""Which sweeps exist, and reading one: by name from the project's sweeps, or by the path of a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from looprepro.files.errors import ConfigError
from looprepro.files.places import checkout, project_root
from looprepro.files.yaml_files import read_yaml
from looprepro.planning.expansion import expand
from looprepro.planning.keys import nearest, settings
from looprepro.planning.roles import canonical
from looprepro.planning.schema import Sweep, read_sweep

RESERVED = ("T", "seed")
"""Names that mean something on every axis, so that no axis may have them."""


def sweeps_folder() -> Path:
    """sweeps/ of the checkout; of the installed package where there is no checkout."""
    found = checkout()
    if found is not None and (found / "sweeps").is_dir():
        return found / "sweeps"
    return project_root() / "looprepro" / "sweeps"


def available_sweeps() -> list[str]:
    """Names of the project's sweeps, table2 before table10. Reads the folder's listing only."""
    return sorted((path.stem for path in sweeps_folder().glob("*.yaml")), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def load_sweep(name_or_path: str | Path) -> Sweep:
    """Read and check a sweep: every key, every axis, and that every scale's cells validate. Raises :class:`ConfigError`."""
    path = _locate(name_or_path)
    sweep = read_sweep(read_yaml(path))
    if sweep.name != path.stem:
        raise ConfigError(
            f"{path}:{sweep.document.line(('name',))}: name '{sweep.name}' is not the file's name",
            f"Write name: {path.stem}, or rename the file",
        )
    _check_axes(sweep)
    for scale in sweep.scales:
        expand(sweep, scale, seeds="0")
    return sweep


def _locate(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if text.endswith((".yaml", ".yml")) or "/" in text:
        path = Path(name_or_path)
        if not path.is_file():
            raise ConfigError(f"sweep file {path} does not exist", "Check the path, or name one of the project's sweeps")
        return path
    names = available_sweeps()
    if text not in names:
        listing = f"Did you mean '{nearest(text, names)}'? There are: {', '.join(names)}" if names else "There is none"
        raise ConfigError(f"unknown sweep '{text}'", f"{listing}; or give the path of a YAML file")
    return sweeps_folder() / f"{text}.yaml"


def _check_axes(sweep: Sweep) -> None:
    """What the schema cannot say: names that must agree with each other."""

    def wrong(path: tuple[str | int, ...], message: str, remedy: str) -> ConfigError:
        return ConfigError(f"{sweep.path}:{sweep.document.line(path)}: {message}", remedy)

    setters: dict[str, str] = {}
    for name, points in sweep.axes.items():
        if name in RESERVED:
            raise wrong(("axes", name), f"an axis cannot be called '{name}'", "Budgets and seeds have their own keys")
        _check_roles(sweep, ("axes", name), [point.role for point in points])
        for index, point in enumerate(points):
            for key in settings(sweep.document, ("axes", name, index, "set"), 2) if point.set else ():
                if setters.setdefault(key, name) != name:
                    raise wrong(
                        ("axes", name, index, "set"),
                        f"axes '{setters[key]}' and '{name}' both set '{key}'",
                        "Let one of them set it",
                    )
    for part, names in (("rows", sweep.layout.rows), ("columns", sweep.layout.columns)):
        for name in names:
            if name not in (*sweep.axes, "T"):
                raise wrong(
                    ("layout", part),
                    f"layout.{part}: no axis '{name}'",
                    f"Did you mean '{nearest(name, (*sweep.axes, 'T'))}'?",
                )
    _check_skip(sweep, ("skip",), sweep.skip, {})
    for scale, overlay in sweep.scales.items():
        _check_skip(sweep, ("scales", scale, "skip"), overlay.skip, {"seed": [str(seed) for seed in overlay.seeds]})
    for scale, overlay in sweep.scales.items():
        for name, items in overlay.axes.items():
            path = ("scales", scale, "axes", name)
            if name not in sweep.axes:
                raise wrong(path, f"unknown axis '{name}'", f"Did you mean '{nearest(name, sweep.axes)}'?")
            if not items:
                raise wrong(path, f"axis '{name}' has no points", "List at least one role")
            _check_roles(sweep, path, [item if isinstance(item, str) else item.role for item in items])


def _check_skip(
    sweep: Sweep, path: tuple[str | int, ...], skip: Sequence[Mapping[str, Sequence[str]]], more: Mapping[str, list[str]]
) -> None:
    """``more``: what may be named besides the axes, with its values."""
    known = {**more, **{axis: sweep.roles(axis) for axis in sweep.axes}}
    for index, combination in enumerate(skip):
        where = f"{sweep.path}:{sweep.document.line((*path, index))}"
        for name, roles in combination.items():
            if name not in known:
                raise ConfigError(f"{where}: skip: no axis '{name}'", f"Did you mean '{nearest(name, known)}'?")
            for role in roles:
                if canonical(role) not in known[name]:
                    raise ConfigError(
                        f"{where}: skip: axis '{name}' has no point '{role}'", f"Did you mean '{nearest(role, known[name])}'?"
                    )


def _check_roles(sweep: Sweep, path: tuple[str | int, ...], roles: list[str]) -> None:
    seen: set[str] = set()
    for index, role in enumerate(map(canonical, roles)):
        if role in seen:
            where = f"{sweep.path}:{sweep.document.line((*path, index))}"
            raise ConfigError(f"{where}: axis '{path[-1]}' has the role '{role}' twice", "Give every point its own role")
        seen.add(role)
