"""How many of some words occur in a long stream of words, counted exactly and block by block (claim C35)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def occurring(wanted: Tensor, stream: Iterable[Tensor], letters: int) -> Tensor:
    """Which rows of ``wanted`` occur among the rows of the blocks of ``stream``: bool ``[items]``.

    ``wanted`` and the blocks are int64 ``[rows, length]`` over 0..letters-1. Rows are compared by a 64-bit code first and
    letter by letter where the codes agree, so the answer is exact. Stops reading once every wanted word was found.
    """
    found = torch.zeros(len(wanted), dtype=torch.bool)
    codes = _codes(wanted, letters)
    missing = codes.unique()
    for block in stream:
        block_codes = _codes(block, letters)
        place = torch.searchsorted(missing, block_codes).clamp_(max=len(missing) - 1)
        candidates = block[missing[place] == block_codes]
        if not len(candidates):
            continue
        for word in candidates.unique(dim=0):
            found |= (wanted == word).all(dim=1)
        if found.all():
            break
        missing = codes[~found].unique()
    return found


def _codes(words: Tensor, letters: int) -> Tensor:
    """Each word as a number in base ``letters``, modulo 2^64: int64 ``[rows]``. Different words may share a code once
    there are more than 2^64 of them."""
    code = torch.zeros(len(words), dtype=torch.int64)
    for column in words.T:
        code = code * letters + column  # wraps around, which is all that a code needs
    return code
