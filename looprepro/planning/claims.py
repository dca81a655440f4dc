"""What a paper claims and how each claim is tested: sweeps/claims/<paper>.yaml, read and checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from looprepro.config.cell import Frozen
from looprepro.files.errors import ConfigError
from looprepro.files.yaml_files import read_yaml
from looprepro.planning.catalog import sweeps_folder
from looprepro.planning.keys import nearest

Selector = dict[str, str]
"""What a sample is: ``sweep``, ``metric`` (or ``series`` with ``span``, or ``column``), ``T``, ``device``, and axis roles.
A metric ``a|b`` is b where no run has a."""

RESERVED = ("sweep", "metric", "series", "span", "column", "T", "device")
"""Keys of a selector that are not axes."""
SPANS = {
    "first quarter": (0.0, 0.25),
    "last quarter": (0.75, 1.0),
    "first third": (0.0, 1 / 3),
    "middle third": (1 / 3, 2 / 3),
    "last third": (2 / 3, 1.0),
}
"""Parts of a series that a sample may average over, as shares of its points."""

Kind = Literal["greater", "disjoint", "equal", "contrast", "range", "bound", "total", "poisson_tail", "winner", "elsewhere"]


class Term(Frozen):
    """One sample of a contrast."""

    weight: float
    of: Selector


class Over(Frozen):
    """One part for each of several roles, which "{role}" stands for, and "{next}" for the one after it: the last role then
    has no part of its own."""

    axis: str
    roles: tuple[str, ...] = ()
    """Empty: every role that the sweep plans at the scale together with the part's own axes, but those of ``except``."""
    without: tuple[str, ...] = Field((), alias="except")


class Part(Frozen):
    """One comparison. Which keys it needs depends on its kind."""

    kind: Kind
    of: Selector = Field(default_factory=dict)
    """What all samples of the part share."""
    a: Selector | None = None
    b: Selector | None = None
    terms: tuple[Term, ...] = ()
    paired: bool = False
    """Compared seed by seed: the samples belong to the same trained cells, or are gains of one over budgets."""
    over: Over | None = None
    between: Over | None = None
    """Of a winner: the roles that compete, in every one of those of ``over``."""
    lowest: bool = False
    """Of a winner: the lowest mean wins, not the highest."""
    margin: float | None = Field(None, gt=0.0)
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    scales: tuple[str, ...] = ()
    """Scales at which the part means anything; empty: all."""
    sweeps: tuple[str, ...] = ()
    device: str | None = None
    mean: float | None = None
    reaches: int | None = None
    where: str | None = None
    """Of ``elsewhere``: the test that holds a theorem, or why nothing here can decide."""

    @field_validator("of", "a", "b", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        return {key: str(role) for key, role in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _complete(self) -> Part:
        needs: dict[str, tuple[str, ...]] = {
            "greater": ("a", "b"),
            "disjoint": ("a", "b"),
            "equal": ("a", "b", "margin"),
            "contrast": ("terms",),
            "range": ("of",),
            "bound": ("of", "limit"),
            "total": ("sweeps", "low", "high"),
            "poisson_tail": ("mean", "reaches", "limit"),
            "winner": ("of", "over", "between"),
            "elsewhere": ("where",),
        }
        absent = [name for name in needs[self.kind] if getattr(self, name) in (None, (), {})]
        if self.kind == "range" and self.low is None and self.high is None:
            absent.append("low or high")
        if self.paired and self.kind not in ("greater", "equal", "contrast"):
            raise ValueError(f"a part of kind {self.kind} compares no pairs")
        if absent:
            raise ValueError(f"a part of kind {self.kind} needs {', '.join(absent)}")
        return self

    @property
    def weighted(self) -> tuple[tuple[float, Selector], ...]:
        """The samples with their weights, each a complete selector ("{role}" still in it)."""
        if self.kind == "contrast":
            return tuple((term.weight, self.of | term.of) for term in self.terms)
        if self.kind in ("range", "bound", "winner"):
            return ((1.0, self.of),)
        if self.kind in ("greater", "disjoint", "equal"):
            return ((1.0, self.of | (self.a or {})), (-1.0, self.of | (self.b or {})))
        return ()


REVISED = "The test was changed when data were known (docs/claims.md)."


class Claim(Frozen):
    """One claim of a paper, in our words."""

    id: str = Field(pattern=r"^[A-Z]+[0-9]+[a-z]?$")
    """C and a number, F and a number; of claims of one's own, other capital letters."""
    family: str
    """Holm's correction is over the claims of one family."""
    says: str
    place: str
    """Line of the paper's plain text."""
    note: str = ""
    """What the reader of a verdict must know."""
    revised: bool = False
    """Its test was changed when data for it were known (docs/claims.md lists how): said beside the verdict."""
    need: int | None = Field(None, ge=1)
    """How many parts must hold; None: all."""
    parts: tuple[Part, ...] = Field(min_length=1)

    @property
    def remark(self) -> str:
        """What is printed beside the verdict; "" where there is nothing to say."""
        return " ".join(part for part in (self.note, REVISED if self.revised else "") if part)


class _File(Frozen):
    claims: tuple[Claim, ...]


PAPERS = {"rotate_the_loop": "Rotate the Loop", "fixed_point_reasoners": "Fixed-Point Reasoners"}
"""Files of sweeps/claims/ and what their papers are called."""


def claimed_papers(folder: Path | None = None) -> list[str]:
    """Names of the files in sweeps/claims/: the two papers, then a user's own."""
    found = sorted(file.stem for file in (folder or sweeps_folder() / "claims").glob("*.yaml"))
    return sorted(found, key=lambda name: (name not in PAPERS, list(PAPERS).index(name) if name in PAPERS else 0))


def load_claims(paper: str, folder: Path | None = None) -> tuple[Claim, ...]:
    """The claims of ``paper`` in their order. :class:`ConfigError` with file and line where one is wrong."""
    folder = folder or sweeps_folder() / "claims"
    path = folder / f"{paper}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise ConfigError(
            f"no claims of the paper '{paper}'", f"Did you mean '{nearest(paper, known)}'?" if known else f"Add {path}"
        )
    document = read_yaml(path)
    try:
        claims = TypeAdapter(_File).validate_python(document.value).claims
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"{path}:{document.line(problem['loc'])}"
        raise ConfigError(f"{where}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}", "Correct that line") from error
    ids = [claim.id for claim in claims]
    repeated = sorted({id for id in ids if ids.count(id) > 1})
    if repeated:
        raise ConfigError(f"{path}: the claim {repeated[0]} is there twice", "Give every claim its own id")
    taken = [id for id in ids if paper not in PAPERS and re.fullmatch(r"[CF][0-9]+[a-z]?", id)]
    if taken:
        raise ConfigError(f"{path}: the claim {taken[0]} could be one of the two papers'", "Use other letters than C and F")
    return claims
