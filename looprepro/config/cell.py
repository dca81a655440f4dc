"""A cell, fully resolved: task, model, training, seed. Frozen; unknown keys are errors; every field says what it is.

Nothing in config/ has a value that depends on the scale: sweeps/*.yaml set them. Defaults are the published host models' or
the papers', and docs/assumptions.md lists those that the papers do not state.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from looprepro.config.base import Frozen, kind_or
from looprepro.config.evaluations import BudgetEvaluation, Evaluation, LanguageEvaluation, ReasonerEvaluation, parse_evaluation
from looprepro.config.models import PARCAE_DECAY, Injection, LoopedTransformer, Recurrence
from looprepro.config.puzzles import ArcTask, MazeTask, StateTrackingTask, SudokuTask
from looprepro.config.reasoners import FixedPointReasoner, ReasonerTraining, RecursiveModel
from looprepro.config.tasks import GroupWordsTask, LanguageTask
from looprepro.config.training import LanguageTraining, ParcaeCompat, Training
from looprepro.files.errors import ConfigError

__all__ = [
    "PARCAE_DECAY",
    "ArcTask",
    "BudgetEvaluation",
    "Cell",
    "Evaluation",
    "Execution",
    "Family",
    "FixedPointReasoner",
    "Frozen",
    "GroupWordsTask",
    "Injection",
    "LanguageEvaluation",
    "LanguageTask",
    "LanguageTraining",
    "LoopedTransformer",
    "MazeTask",
    "ParcaeCompat",
    "ReasonerEvaluation",
    "ReasonerTraining",
    "Recurrence",
    "RecursiveModel",
    "StateTrackingTask",
    "SudokuTask",
    "Training",
    "check_execution",
    "narrow",
    "parse_evaluation",
    "text_parts",
    "without_kinds",
    "word_parts",
]

Family = Literal["words", "language", "reasoner"]
"""Kinds of cells that train and are measured alike: group words, language models, reasoners."""

_FAMILIES: dict[str, tuple[Family, tuple[str, ...], str]] = {
    "group_words": ("words", ("looped_transformer",), "steps"),
    "language": ("language", ("looped_transformer",), "tokens"),
    "state_tracking": ("reasoner", ("fixed_point", "recursive", "looped_transformer"), "windows"),
    "sudoku": ("reasoner", ("fixed_point", "recursive"), "windows"),
    "maze": ("reasoner", ("fixed_point", "recursive"), "windows"),
    "arc": ("reasoner", ("fixed_point", "recursive"), "windows"),
}
"""Task -> its family, the models that can learn it, and the way of training."""


class Cell(Frozen):
    """One training run, fully resolved. Its identity is the hash of all of it (config/identity.py)."""

    task: Annotated[
        Annotated[GroupWordsTask, Tag("group_words")]
        | Annotated[LanguageTask, Tag("language")]
        | Annotated[StateTrackingTask, Tag("state_tracking")]
        | Annotated[SudokuTask, Tag("sudoku")]
        | Annotated[MazeTask, Tag("maze")]
        | Annotated[ArcTask, Tag("arc")],
        Discriminator(kind_or("group_words")),
    ]
    model: Annotated[
        Annotated[LoopedTransformer, Tag("looped_transformer")]
        | Annotated[FixedPointReasoner, Tag("fixed_point")]
        | Annotated[RecursiveModel, Tag("recursive")],
        Discriminator(kind_or("looped_transformer")),
    ]
    training: Annotated[
        Annotated[Training, Tag("steps")]
        | Annotated[LanguageTraining, Tag("tokens")]
        | Annotated[ReasonerTraining, Tag("windows")],
        Discriminator(kind_or("steps")),
    ]
    seed: int = Field(ge=0)

    @property
    def family(self) -> Family:
        """Which family the cell belongs to; its task decides."""
        return _FAMILIES[self.task.kind][0]

    @model_validator(mode="after")
    def _consistent(self) -> Cell:
        _, models, training = _FAMILIES[self.task.kind]
        if self.model.kind not in models:
            raise ValueError(f"model.kind {self.model.kind} cannot learn {self.task.kind}: use {', '.join(models)}")
        if self.training.kind != training:
            raise ValueError(f"{self.task.kind} is trained by training.kind {training}, not {self.training.kind}")
        if isinstance(self.training, LanguageTraining):
            _check_rows(narrow(self.task, LanguageTask), self.training)
        return self


_Kind = TypeVar("_Kind")


def narrow(value: object, kind: type[_Kind]) -> _Kind:
    """``value``, known to be a ``kind`` because of the cell's family. Raises ``TypeError`` where it is not."""
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where the family has {kind.__name__}")
    return value


def _check_rows(task: LanguageTask, training: LanguageTraining) -> None:
    if training.batch_tokens % task.sequence:
        raise ValueError(
            f"training.batch_tokens {training.batch_tokens} is not a whole number of rows of "
            f"task.sequence {task.sequence} tokens"
        )


def word_parts(cell: Cell) -> tuple[GroupWordsTask, LoopedTransformer, Training]:
    """Task, model and training of a cell of the group-word family."""
    return narrow(cell.task, GroupWordsTask), narrow(cell.model, LoopedTransformer), narrow(cell.training, Training)


def text_parts(cell: Cell) -> tuple[LanguageTask, LoopedTransformer, LanguageTraining]:
    """Task, model and training of a cell of the language family."""
    return narrow(cell.task, LanguageTask), narrow(cell.model, LoopedTransformer), narrow(cell.training, LanguageTraining)


_UNIONS = ("task", "model", "training")


def without_kinds(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """A key's path without the kind that pydantic names after its section ("task", "group_words", "length")."""
    if location and location[0] in _UNIONS:
        return (location[0], *location[2:])
    return location


class Execution(Frozen):
    """Where and how a cell runs: outside its identity, fixed by the scale, recorded in every row (it changes rounding)."""

    threads: int = Field(1, ge=1)
    """CPU threads per cell."""
    ranks: int = Field(1, ge=1)
    """Processes, and GPUs, that train one language model together."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    kernels: Literal["fused", "plain"] = "fused"
    """On a CPU: blocks and steps with the loops of looprepro/native, or torch's operators one by one (the oracle of tests)."""
    compile: bool = False
    """torch.compile of the core; the plain code is the test oracle."""
    pack: Literal["none", "seeds"] = "none"
    """Whether cells that differ only in their seed train as one stacked model (planning/packs.py)."""
    tf32: bool = False
    """On CUDA: float32 products in TensorFloat-32."""
    micro_batch: int | Literal["auto"] | None = None
    """Slots of a reasoner's batch whose window is computed at once, the gradients added up before the one update. None: all;
    auto: in as few equal parts as fit the memory that plans count with (config/reasoner_formulas.py)."""
    read_back_every: int | None = Field(None, ge=1)
    """Steps between looks at the flag that a loss or gradient was not finite; None: 1 on a CPU, ``log_every`` on CUDA. Changes
    when a divergence is noticed, never its step."""
    log_every: int = Field(50, ge=1)
    """Steps between lines of metrics.jsonl."""
    checkpoint_seconds: float = Field(60.0, gt=0.0)
    """Seconds between checkpoints."""
    checkpoint_steps: int | None = Field(None, ge=1)
    """Also after every so many steps (tests, and fleets where signals get lost)."""

    @field_validator("micro_batch", mode="before")
    @classmethod
    def _slots(cls, value: Any) -> Any:
        if value is None or value == "auto" or (type(value) is int and value >= 1):
            return value
        raise ValueError(f"{value!r} is neither a number of slots nor auto")


def check_execution(cell: Cell, execution: Execution) -> None:
    """:class:`ConfigError` where ``execution`` asks for what the cell's family does not do."""
    if execution.micro_batch is not None and cell.family != "reasoner":
        raise ConfigError(
            f"execution.micro_batch cuts the batch of a reasoner, and what learns {cell.task.kind} is none",
            "Leave it out; a language model has training.micro_batch",
        )
