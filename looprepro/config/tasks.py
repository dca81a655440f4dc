"""What a cell learns: one frozen model per kind of task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from looprepro.config.cell import Frozen


class LanguageTask(Frozen):
    """Predict the next token of English text (Rotate the Loop, section 5.2)."""

    kind: Literal["language"] = "language"
    data: str = "offline-smoke"
    """A prepared corpus: its name below ``data/``, or (with a slash) the folder that ``looprepro data prepare`` wrote."""
    vocabulary: int = Field(32_768, ge=259)
    """Token ids of its tokenizer."""
    sequence: int = Field(2048, ge=2)
    """Tokens that the model reads per row."""
    document_mask: bool = False
    """Attention stays inside each document of a row; the public code attends across (specs: plain causal)."""
    content: str | None = None
    """The SHA-256 that the corpus must have (``looprepro data list``); None: any, and the result records which."""
