"""Which item a row of a stream is: every item once per epoch, in each in an order of its own."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from looprepro import randomness


def shuffled(seed: int, rows: Tensor, items: int) -> Tensor:
    """Int64 ``[rows]``: the item of each row. Row r belongs to epoch r // items; a pure function of seed, row and items."""
    epochs = torch.div(rows, items, rounding_mode="floor")
    found = torch.empty_like(rows)
    for epoch in epochs.unique().tolist():
        here = epochs == epoch
        found[here] = _order(seed, epoch, items)[rows[here] - epoch * items]
    return found


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, items: int) -> Tensor:
    keys = randomness.words(seed, randomness.ORDER, epoch, torch.arange(items), 1)[:, 0]
    return keys.argsort(stable=True)
