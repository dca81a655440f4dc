"""Measurements on trained weights. Each has its own identity, so a new budget retrains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from looprepro.config.base import Frozen, kind_or
from looprepro.config.reasoners import SolverFields


class BudgetEvaluation(Frozen):
    """Accuracy and operator geometry of a looped transformer on group words at one budget."""

    kind: Literal["budget"] = "budget"
    T: int = Field(ge=1)
    """The budget: recurrent steps given to every sequence."""
    items: int = Field(1024, ge=1)
    """Evaluation words, from a stream that training never draws."""


class LanguageEvaluation(Frozen):
    """Quality of a language model at one budget."""

    kind: Literal["language"] = "language"
    T: int = Field(ge=1)
    """The budget: recurrent steps given to every sequence."""
    items: int = Field(128, ge=1)
    """Validation rows."""


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
