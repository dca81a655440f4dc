"""Measurements on trained weights. Each has its own identity, so a new budget retrains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, field_validator

from looprepro.config.base import Frozen, kind_or
from looprepro.config.reasoners import SolverFields


class BudgetEvaluation(Frozen):
    """Accuracy and operator geometry of a looped transformer on group words at one budget."""

    kind: Literal["budget"] = "budget"
    T: int = Field(ge=1)
    """The budget: recurrent steps given to every sequence."""
    items: int = Field(1024, ge=1)
    """Evaluation words, from a stream that training never draws."""


LanguageMetric = Literal["geometry", "lambada", "last_word", "perplexity"]


class LanguageEvaluation(Frozen):
    """Quality of a language model at one budget, on held-out text."""

    kind: Literal["language"] = "language"
    T: int = Field(ge=1)
    """The budget: recurrent steps given to every sequence."""
    metrics: tuple[LanguageMetric, ...] = ("geometry", "last_word", "perplexity")
    """``perplexity``: packed, per document, of a unigram model, and bits per byte; ``last_word``: the stand-in made from the
    corpus; ``lambada``: needs its data; ``geometry``: of the operator alone."""
    items: int = Field(128, ge=1)
    """Packed validation rows, at most: perplexity as training measures it."""
    documents: int = Field(1000, ge=1)
    """Validation documents, at most, each scored alone: perplexity per document and bits per byte."""
    questions: int | None = Field(None, ge=1)
    """LAMBADA items, or passages of its stand-in, at most; None: all."""
    draws: int = Field(1, ge=1)
    """How many x_0 every number is averaged over; above 1 their standard deviation stands beside it as ``<name>_sd``."""
    lambada: str = "lambada"
    """Prepared LAMBADA data: a name below ``data/``, or (with a slash) a folder or a .jsonl file of {"text": ...}; ``hub``, for
    lm-eval alone: what its task downloads."""
    harness: Literal["own", "lm-eval"] = "own"
    """What scores LAMBADA: our scorer, or lm-eval's ``lambada_openai`` task on the same data (extra: lm)."""

    @field_validator("metrics")
    @classmethod
    def _sorted(cls, metrics: tuple[LanguageMetric, ...]) -> tuple[LanguageMetric, ...]:
        if not metrics:
            raise ValueError("metrics are empty: name one")
        return tuple(sorted(set(metrics)))


class ReasonerEvaluation(SolverFields):
    """One measurement of a reasoner: every item is iterated until it halts, and answers what it then holds."""

    kind: Literal["reasoner"] = "reasoner"
    T: int = Field(ge=1)
    """The cap: iterations (FPRM) or supervision steps (the recursive models) after which an item answers in any case."""
    gamma: float = Field(0.99, gt=0.0, le=1.0)
    """Factor of eta after ``patience`` iterations without a smaller residual."""
    freeze: bool = True
    """Each item halts alone and keeps its state. False: a batch goes on until its last item halts, as in the released code."""
    items: int = Field(1024, ge=1)
    """Evaluation items, from a stream that training never draws."""


Evaluation = BudgetEvaluation | LanguageEvaluation | ReasonerEvaluation

_ANY: TypeAdapter[Evaluation] = TypeAdapter(
    Annotated[
        Annotated[BudgetEvaluation, Tag("budget")]
        | Annotated[LanguageEvaluation, Tag("language")]
        | Annotated[ReasonerEvaluation, Tag("reasoner")],
        Discriminator(kind_or("budget")),
    ]
)

EVALUATIONS: Mapping[str, type[Evaluation]] = {
    "words": BudgetEvaluation,
    "language": LanguageEvaluation,
    "reasoner": ReasonerEvaluation,
}
"""How the cells of each family are measured."""


def parse_evaluation(document: Any) -> Evaluation:
    """The evaluation of a JSON document, by its ``kind``. Raises pydantic's ``ValidationError``."""
    return _ANY.validate_python(document)
