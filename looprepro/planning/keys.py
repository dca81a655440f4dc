"""The dotted keys of a cell's configuration ("training.lr"), read off its models, and the nearest one to a misspelt key."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from looprepro.config.cell import Cell
from looprepro.config.evaluations import EVALUATIONS
from looprepro.files.errors import ConfigError
from looprepro.files.yaml_files import Document, KeyPath
from looprepro.planning.roles import is_symbolic

SYNONYMS: Mapping[str, str] = {
    "learning_rate": "training.lr",
    "batch_size": "training.batch",
    "num_steps": "training.steps",
    "warmup_steps": "training.warmup",
    "grad_clip": "training.clip",
    "precision": "training.dtype",
    "d_model": "model.width",
    "hidden_size": "model.width",
    "n_head": "model.heads",
    "num_heads": "model.heads",
    "T_max": "model.recurrence.maximum",
    "mean_recurrence": "model.recurrence.mean",
    "bptt": "model.recurrence.backprop_depth",
    "G": "model.injection.groups",
    "omega": "model.injection.omega_init",
    "sequence_length": "task.length",
    "n": "task.length",
}
"""What other code bases call our keys: only used to find the nearest valid key of a misspelt one."""


CAP = "evaluation.cap"
"""What the symbol ``cap`` stands for in a sweep's budgets: iterations of one model, supervision steps of another. It is no
field of an evaluation, which holds the resulting T alone."""
_CAP_FIELD = FieldInfo(annotation=int, default=None)


@dataclass(frozen=True)
class Leaf:
    """One key that takes a value."""

    key: str
    fields: tuple[FieldInfo, ...]
    """One, or one per kind of task, model or training that has a field of that name."""

    @property
    def default(self) -> Any:
        """The value where none is set, by the first kind that has the key."""
        return self.fields[0].get_default(call_default_factory=True)

    def parse(self, value: Any) -> Any:
        """``value`` as the field's type ("1e-3" -> 0.001). Raises pydantic's ``ValidationError``."""
        return _adapter(self.key).validate_python(value)

    def is_symbolic(self, value: Any) -> bool:
        """Whether ``value`` is a symbol such as "d/2" here: "2d" is one where a number is wanted, and a value where it names
        a kind of convolution."""
        if not is_symbolic(value):
            return False
        try:
            self.parse(value)
        except ValidationError:
            return True
        return False

    def parse_text(self, text: str) -> Any:
        """What was typed on a command line, as the field's type: "null" is None, brackets make a list."""
        if text in ("null", "None", "~"):
            return self.parse(None)
        return self.parse(json.loads(text) if text.startswith("[") else text)


@cache
def leaves() -> dict[str, Leaf]:
    """Every key of a cell that takes a value, and those of its evaluations as ``evaluation.*``.

    Not ``seed``: seeds belong to the scales and to --seeds. Not an evaluation's budget and items: they are the sweep's
    ``evaluations``.
    """
    found: dict[str, list[FieldInfo]] = {}
    members = [("", Cell), *(("evaluation.", model) for model in EVALUATIONS.values())]
    for prefix, model in members:
        for key, field in _walk(model, prefix):
            if all(str(field.annotation) != str(known.annotation) for known in found.setdefault(key, [])):
                found[key].append(field)
    kept = found.keys() - {"seed", "evaluation.T", "evaluation.items", "evaluation.kind"}
    return {key: Leaf(key, tuple(fields)) for key, fields in found.items() if key in kept} | {CAP: Leaf(CAP, (_CAP_FIELD,))}


@cache
def sections() -> frozenset[str]:
    """Keys that only hold other keys: "model", "model.injection"."""
    return frozenset(key[:index] for key in leaves() for index, letter in enumerate(key) if letter == ".")


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    types = [
        Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation for field in leaves()[key].fields
    ]
    annotation: Any = Union[*types]
    return TypeAdapter(annotation)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        inner = list(_models(field.annotation))
        for member in inner:
            yield from _walk(member, f"{prefix}{name}.")
        if not inner:
            yield prefix + name, field


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated):
        for member in get_args(annotation):
            yield from _models(member)


def nearest(word: str, valid: Iterable[str]) -> str:
    """The member of ``valid`` that looks most like ``word``; "" where there is none."""
    return max(sorted(valid), key=lambda candidate: _likeness(word, candidate), default="")


def by_start(text: str, ids: Collection[str], what: str = "cell") -> str:
    """``text`` itself, or the one of ``ids`` that starts with it. :class:`ConfigError` where none or several do."""
    matching = [id for id in ids if id.startswith(text)]
    if text in matching:
        return text
    if len(matching) != 1:
        few = f"{len(matching)} cells start with '{text}'" if matching else f"no {what} is called '{text}'"
        remedy = f"Did you mean '{nearest(text, ids)}'?" if ids else "Run a sweep first"
        raise ConfigError(few, remedy if not matching else "Write more of the id")
    return matching[0]


def nearest_key(key: str, extra: Iterable[str] = ()) -> str:
    """The valid dotted key that looks most like ``key``, also by what other code bases call it ("learning_rate").

    The last part counts most: a right name in a wrong section finds its section.
    """
    section, _, name = key.rpartition(".")

    def score(candidate: tuple[str, str]) -> float:
        path, alias = candidate
        where, _, last = path.rpartition(".")
        called = max(_likeness(name, last), _likeness(name, alias) if alias else 0.0)
        return called + 0.3 * _likeness(section, where)

    names = [(path, "") for path in sorted({*leaves(), *extra})]
    return max(names + [(path, alias) for alias, path in sorted(SYNONYMS.items())], key=score)[0]


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a.lower(), b.lower(), autojunk=False).ratio()


@dataclass(frozen=True, slots=True)
class Setting:
    """A value for one key, and where it was written."""

    value: Any
    where: str
    """ "file:line", or the override as typed."""
    layer: int
    """Later layers replace earlier ones: 0 base, 1 scale, 2 axes, 3 overrides."""


def settings(document: Document, path: KeyPath, layer: int) -> dict[str, Setting]:
    """Flatten the mapping at ``path`` of a sweep file (nested or with dotted keys) to settings by dotted key.

    Raises :class:`ConfigError` with file, line and the nearest valid key for a key that no cell has.
    """
    value: Any = document.value
    for part in path:
        value = value[part]
    found: dict[str, Setting] = {}
    for key, leaf, line in _flatten(document, value, path, ""):
        where = f"{document.path}:{line}"
        if key in found:
            raise ConfigError(f"{where}: '{key}' is set twice (first at {found[key].where})", "Keep one of them")
        found[key] = Setting(leaf, where, layer)
    return found


def _flatten(document: Document, value: Any, path: KeyPath, prefix: str) -> Iterator[tuple[str, Any, int]]:
    if not isinstance(value, Mapping):
        where = f"{document.path}:{document.line(path)}"
        raise ConfigError(f"{where}: '{prefix.rstrip('.') or path[-1]}' holds keys, not the value {value!r}", "Set its keys")
    for name, inner in value.items():
        key, here = f"{prefix}{name}", (*path, str(name))
        if key in sections():
            yield from _flatten(document, inner, here, f"{key}.")
        elif key in leaves():
            yield key, inner, document.line(here)
        else:
            raise unknown_key(f"{document.path}:{document.line(here)}", key)


def unknown_key(where: str, key: str, extra: Iterable[str] = ()) -> ConfigError:
    """The error for a key that no cell has."""
    if key == "seed":
        return ConfigError(f"{where}: seeds are not set by 'seed'", "Use the scale's key 'seeds', or --seeds")
    if key in sections():
        inner = ", ".join(sorted(k for k in leaves() if k.startswith(f"{key}.")))
        return ConfigError(f"{where}: '{key}' is a section", f"Set one of its keys: {inner}")
    return ConfigError(f"{where}: unknown key '{key}'", f"Did you mean '{nearest_key(key, extra)}'?")
