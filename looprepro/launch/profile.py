"""Cluster profiles: slurm/<name>.yaml as frozen data. What a profile says can reach a batch script only as a safe word."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from looprepro.config.cell import Frozen
from looprepro.files.errors import ConfigError
from looprepro.files.places import checkout, project_root
from looprepro.files.yaml_files import Document, read_yaml

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:/@+=-]*")
_CONSTRAINT = re.compile(r"[A-Za-z0-9_(\[][A-Za-z0-9_.,:&|*()\[\]-]*")
_NODES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEMORY = re.compile(r"[1-9][0-9]*[KMGT]?")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"{value!r} may hold letters, digits and _ . , : / @ + = - only, and not begin with a dash")
    return value


def _constraint(value: str) -> str:
    if not _CONSTRAINT.fullmatch(value):
        raise ValueError(f"{value!r} may hold feature names and & | * ( ) [ ] only")
    return value


def _nodes(value: str) -> str:
    if not _NODES.fullmatch(value):
        raise ValueError(f"{value!r} is not a list of nodes: write it like n1,n[7-9]")
    return value


def _line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{value!r} must be one line of printable text: write one list item per line")
    return value


def _memory(value: str) -> str:
    if not _MEMORY.fullmatch(value):
        raise ValueError(f"{value!r} is not an amount of memory: write it like 64G or 700M")
    return value


def _time(value: str) -> str:
    time_limit_seconds(value)
    return value


def time_limit_seconds(value: str) -> int:
    """Seconds of a SLURM time limit: ``minutes``, ``m:s``, ``h:m:s``, ``d-h``, ``d-h:m`` or ``d-h:m:s``; else ValueError."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise ValueError(f'{value!r} is not a time limit: write it in quotes like "12:00:00" or "2-00:00:00"')
    first, second, third = (int(match[part] or 0) for part in ("first", "second", "third"))
    if match["days"] is not None:
        hours, minutes, seconds = int(match["days"]) * 24 + first, second, third
    elif match["third"] is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    total = (hours * 60 + minutes) * 60 + seconds
    if total <= 0:
        raise ValueError(f"{value!r} is no time at all")
    return total


Word = Annotated[str, AfterValidator(_word)]
Line = Annotated[str, AfterValidator(_line)]


class Profile(Frozen):
    """How one cluster wants its jobs. A job asks for one node, or for ``nodes`` where it is one cell of as many ranks.

    ``cells_per_job`` cells (or packs of seeds) run in a job, a process each. A cell with several ranks has a job to itself,
    whose one task starts the other ranks, or whose tasks are the ranks.
    """

    name: Word
    """The file's name without ``.yaml``; not a key of the file."""
    partition: Word
    """``--partition``: one, or several separated by commas."""
    account: Word | None = None
    """``--account``: what the hours are charged to."""
    qos: Word | None = None
    """``--qos``."""
    constraint: Annotated[str, AfterValidator(_constraint)] | None = None
    """``--constraint``: node features, such as ``h100&nvlink``."""
    reservation: Word | None = None
    """``--reservation``."""
    exclude: Annotated[str, AfterValidator(_nodes)] | None = None
    """``--exclude``: nodes not to use, such as ``n1,n[7-9]``."""
    nodes: int = Field(1, ge=1)
    """Nodes of a job; more than one only for cells with several ranks."""
    tasks: int = Field(1, ge=1)
    """Tasks on each node. Above 1 each is one rank of a cell, and nodes times tasks must be the cells' ranks."""
    gpus: int = Field(1, ge=0)
    """GPUs of a job on each node; 0 for none."""
    gpu_type: Word | None = None
    """The type in ``--gres=gpu:TYPE:N``."""
    cpus: int = Field(1, ge=1)
    """CPU cores of a job, shared by its cells."""
    memory: Annotated[str, AfterValidator(_memory)]
    """Memory of a job, shared by its cells: ``64G``."""
    time: Annotated[str, AfterValidator(_time)]
    """Time limit of a job. A job that is not finished then checkpoints and goes on in the queue."""
    signal_lead: int = Field(120, ge=1, le=65535)
    """Seconds before the time limit at which the worker is told to checkpoint; SLURM may be up to 60 s early."""
    cells_per_job: int = Field(1, ge=1)
    """Cells that are trained side by side in one job."""
    array_parallelism: int = Field(64, ge=1)
    """Jobs of one array that may run at once."""
    max_array_size: int = Field(1001, ge=2)
    """The cluster's MaxArraySize: no index of an array may reach it."""
    requeue: bool = True
    """Let SLURM start a job again after preemption or node failure; false for clusters that forbid it."""
    poll_seconds: float = Field(30.0, ge=1.0)
    """The scheduler is asked no more often than this."""
    submit_timeout: float = Field(60.0, gt=0.0)
    """Seconds after which an sbatch that does not answer is given up."""
    python: Line | None = None
    """The interpreter on the nodes; the submitting one by default."""
    modules: tuple[Word, ...] = ()
    """Loaded first, one ``module load`` each."""
    environment: dict[str, Line] = Field(default_factory=dict)
    """Variables that every job gets; values are quoted, nothing in them is expanded."""
    setup: tuple[Line, ...] = ()
    """Shell lines run after the modules, exactly as written: the only part of a profile that a shell interprets."""
    container: tuple[Line, ...] = ()
    """Words put before the worker's command, each quoted: ``[apptainer, exec, --nv, image.sif]``."""
    several_ranks: Profile | None = None
    """The profile of cells with several ranks; None: this one. The file names another file of its folder, without ``.yaml``."""

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        if self.gpu_type is not None and self.gpus == 0:
            raise ValueError("gpu_type is set but gpus is 0: remove one of them")
        if self.nodes * self.tasks > 1 and self.cells_per_job > 1:
            raise ValueError("a job of several tasks runs one cell: set cells_per_job: 1")
        if self.signal_lead >= self.seconds:
            raise ValueError(f"signal_lead ({self.signal_lead} s) must be shorter than time ({self.seconds} s)")
        for variable in self.environment:
            if not _VARIABLE.fullmatch(variable):
                raise ValueError(f"environment: {variable!r} is not a variable name")
        if self.container and self.container[0].startswith("-"):
            raise ValueError(f"container: {self.container[0]!r} is not a command")
        return self

    def of(self, ranks: int) -> Profile:
        """The profile of a job whose cells have so many ranks."""
        return self.several_ranks or self if ranks > 1 else self

    @property
    def seconds(self) -> int:
        """The time limit of a job in seconds."""
        return time_limit_seconds(self.time)

    @property
    def gres(self) -> str | None:
        """The value of ``--gres``: ``gpu:h100:1``; None without GPUs."""
        if self.gpus == 0:
            return None
        return f"gpu:{self.gpu_type}:{self.gpus}" if self.gpu_type else f"gpu:{self.gpus}"


def profile_folder() -> Path:
    """``slurm/`` of a checkout, or the copy of it that an installed package carries."""
    found = checkout()
    if found is not None and (found / "slurm").is_dir():
        return found / "slurm"
    return project_root() / "looprepro" / "data" / "slurm"


def available_profiles() -> list[str]:
    """Names that :func:`load_profile` takes, sorted."""
    return sorted(path.stem for path in profile_folder().glob("*.yaml"))


def load_profile(name_or_path: str) -> Profile:
    """The profile of that name in ``slurm/``, or in that file (anything with a ``/`` or ending in ``.yaml``).

    :class:`ConfigError`, naming file, line and the nearest key or name, where it does not exist or says something wrong.
    """
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
    else:
        names = available_profiles()
        if name_or_path not in names:
            raise ConfigError(
                f"unknown profile {name_or_path!r}{_nearest(name_or_path, names)}",
                f"Known profiles: {', '.join(names) or 'none'}; or give the path of a YAML file",
            )
        path = profile_folder() / f"{name_or_path}.yaml"
    return _load(path)


def _load(path: Path, *, named_by: str = "") -> Profile:
    """The profile in a file; ``named_by``: the one whose ``several_ranks`` it is."""
    document = read_yaml(path)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{path}:1: a profile is a list of 'key: value' lines", "See slurm/h100.yaml")
    wider = {}
    if "several_ranks" in document.value:
        if named_by:
            raise ConfigError(
                f"{path}:{document.line(('several_ranks',))}: {named_by} names this profile for cells with several ranks, "
                "and it names another one",
                "Remove the line from one of them",
            )
        wider["several_ranks"] = _several_ranks(document)
    if "name" in document.value:
        raise ConfigError(
            f"{path}:{document.line(('name',))}: unknown key 'name'", "A profile is called as its file: remove it"
        )
    try:
        return Profile.model_validate({"name": path.stem, **document.value, **wider})
    except ValidationError as error:
        raise _explained(document, error) from error


def _several_ranks(document: Document) -> Profile:
    name, folder = str(document.value["several_ranks"]), document.path.parent
    names = sorted(path.stem for path in folder.glob("*.yaml") if path != document.path)
    if name not in names:
        raise ConfigError(
            f"{document.path}:{document.line(('several_ranks',))}: no profile {name!r} beside this one{_nearest(name, names)}",
            "Name a file of the same folder, without .yaml",
        )
    return _load(folder / f"{name}.yaml", named_by=document.path.stem)


def _explained(document: Document, error: ValidationError) -> ConfigError:
    """The first problem of ``error`` as one line with its place, and how many more there are."""
    problems = error.errors(include_url=False)
    problem = min(problems, key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key explains the missing one
    location = problem["loc"]
    where = f"{document.path}:{document.line(location)}"
    key = ".".join(str(part) for part in location)
    message, remedy = _problem_text(key, problem["type"], problem["msg"], problem["input"])
    if key == "name":
        where, message = str(document.path), f"the file's name is not a profile name: {message}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ConfigError(f"{where}: {message}{more}", remedy)


def _problem_text(key: str, kind: str, message: str, value: Any) -> tuple[str, str]:
    known = [field for field in Profile.model_fields if field != "name"]
    if kind == "extra_forbidden":
        return f"unknown key {key!r}{_nearest(key, known)}", f"Known keys: {', '.join(known)}"
    if kind == "missing":
        return f"key {key!r} is missing", "See slurm/h100.yaml"
    text = message.removeprefix("Value error, ")
    if kind == "value_error":
        return f"{key}: {text}" if key else text, ""
    return f"{key}: {text}, not {value!r}", "Quote a text that YAML reads as a number" if kind == "string_type" else ""


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
