"""What a cell learns: one frozen model per kind of task."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from looprepro.config.base import Frozen

GROUPS = {"S": (2, 7), "A": (3, 7), "Z": (2, 5040)}
"""Family -> fewest and most points: groups of one element hold nothing to learn, and tables end at 5040 elements."""


def known_group(name: str) -> str:
    """``name``, such as A5. ``ValueError`` where it is no group whose table can be made."""
    fewest, most = GROUPS.get(name[:1], (0, -1))
    if not (name[1:].isdecimal() and fewest <= int(name[1:]) <= most and not name[1:].startswith("0")):
        ranges = ", ".join(f"{family}{low} to {family}{high}" for family, (low, high) in GROUPS.items())
        raise ValueError(f"unknown group '{name}': there are {ranges}")
    return name


Group = Annotated[str, AfterValidator(known_group)]


class GroupWordsTask(Frozen):
    """Read g_1..g_n of a finite group, emit every prefix product g_1...g_t (Rotate the Loop, section 5.1, appendix E)."""

    kind: Literal["group_words"] = "group_words"
    group: Group = "A5"
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
