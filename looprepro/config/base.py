"""The base of all configuration, and unions whose members are told apart by ``kind``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of all configuration: immutable, no unknown keys, no silent conversion of NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def kind_or(default: str) -> Any:
    """A pydantic discriminator: the value's ``kind``, or ``default`` where none is written."""

    def kind(value: Any) -> Any:
        return value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", None)

    return kind
