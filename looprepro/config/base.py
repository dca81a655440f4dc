"""The base of all configuration, and unions whose members are told apart by ``kind``."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Frozen(BaseModel):
    """Base of all configuration: immutable, no unknown keys, no silent conversion of NaN or of true and false to 1 and 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_no_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        if any(isinstance(one, bool) for one in (value if isinstance(value, list | tuple) else (value,))):
            allowed = cls.model_fields[str(info.field_name)].annotation
            if bool not in (get_args(allowed) or (allowed,)):
                raise ValueError("true and false are no values here")
        return value


def kind_or(default: str) -> Any:
    """A pydantic discriminator: the value's ``kind``, or ``default`` where none is written."""

    def kind(value: Any) -> Any:
        return value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", None)

    return kind
