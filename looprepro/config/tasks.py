"""What a cell learns: one frozen model per kind of task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from looprepro.config.base import Frozen


class GroupWordsTask(Frozen):
    """Read g_1..g_n of a finite group, emit every prefix product g_1...g_t (Rotate the Loop, section 5.1, appendix E)."""

    kind: Literal["group_words"] = "group_words"
    group: str = Field("A5", pattern=r"^[SAZ][1-9][0-9]*$")
    """S_n (symmetric), A_n (alternating) or Z_n (cyclic): "A5" has 60 elements, "S5" 120."""
    length: int = Field(32, ge=2)
    """n, the longest word of the curriculum and the length of the evaluation words."""
    alphabet: Literal["all", "generators"] = "all"
    """Letters are drawn from all group elements, or from a small stated generating set."""
    start_token: bool = True
    """A first token whose output is neither trained nor scored."""
    curriculum: Literal["doubling", "none"] = "doubling"
    """Lengths 2, 4, 8, ..., n in equal slices of training; or n throughout."""


class LanguageTask(Frozen):
    """Predict the next token of English text (Rotate the Loop, section 5.3)."""

    kind: Literal["language"] = "language"
    data: str = "offline-smoke"
    """A prepared corpus: its name below ``data/``, or (with a slash) the folder that ``looprepro data prepare`` wrote."""
    vocabulary: int = Field(32_768, ge=4)
    """Token ids of its tokenizer."""
    sequence: int = Field(2048, ge=2)
    """Tokens that the model reads per row."""
    document_mask: bool = False
    """Attention stays inside each document of a row; as published it runs across them."""
    content: str | None = None
    """The SHA-256 that the corpus must have (``looprepro data list --json``); None: any, and the result records which."""
