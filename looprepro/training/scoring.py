"""Score token sequences of any length at several budgets: nats of their targets, and whether greedy decoding gives them.

Sequences are scored in blocks of similar length, padded on the right, where a causal model does not look. x_0 of a sequence
follows from its number, not from its block, so a score does not depend on what is scored beside it (but for rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from looprepro.config.corpus import PAD

LOGITS = 1 << 28
"""Logits of one block, at most, where one sequence has no more: 1 GiB in float32."""
ROWS = 128
"""Sequences of one block, at most."""

Readouts = Callable[[Tensor, Tensor, Sequence[int]], Iterator[tuple[int, Tensor]]]
"""``readouts(tokens, state, budgets)``: (T, logits ``[rows, time, vocabulary]``) at each of the ascending budgets."""
State = Callable[[Tensor, int], Tensor]
"""``state(rows, time)``: x_0 ``[rows, time, width]`` of sequences number ``rows``."""


@dataclass(frozen=True)
class Scored:
    """What was found at one budget."""

    nats: np.ndarray
    """Float64 ``[sequences]``: -log p, summed over the targets."""
    greedy: np.ndarray
    """Bool ``[sequences]``: every target is the most likely token."""


def blocks(lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Numbers of the sequences of each block: by length, then number."""
    block: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if block and (len(block) >= ROWS or (len(block) + 1) * lengths[number] * vocabulary > LOGITS):
            yield block
            block = []
        block.append(number)
    if block:
        yield block


@torch.no_grad()
def score(
    readouts: Readouts,
    state: State,
    sequences: Sequence[Sequence[int]],
    targets: Sequence[int],
    budgets: Sequence[int],
    vocabulary: int,
    device: torch.device,
) -> dict[int, Scored]:
    """Budget -> scores. ``targets``: how many of the last tokens of each sequence are scored; the others are context.

    Every sequence has one token more than it has targets, at least. ``budgets`` ascend.
    """
    count = len(sequences)
    if any(not 1 <= n < len(s) for s, n in zip(sequences, targets, strict=True)):
        raise ValueError("a target needs a token before it")
    found = {budget: Scored(np.zeros(count), np.zeros(count, dtype=bool)) for budget in budgets}
    lengths = [len(sequence) - 1 for sequence in sequences]
    for block in blocks(lengths, vocabulary):
        time = max(lengths[number] for number in block)
        read = np.full((len(block), time + 1), PAD, dtype=np.int64)
        scored = np.zeros((len(block), time), dtype=bool)
        for i, number in enumerate(block):
            read[i, : lengths[number] + 1] = sequences[number]
            scored[i, lengths[number] - targets[number] : lengths[number]] = True
        tokens, mask = torch.from_numpy(read).to(device), torch.from_numpy(scored).to(device)
        rows = torch.tensor(block, dtype=torch.int64)
        for budget, logits in readouts(tokens[:, :-1], state(rows, time), budgets):
            nats, hit = _token_scores(logits, tokens[:, 1:])
            found[budget].nats[block] = (nats * mask).sum(dim=1).cpu().numpy()
            found[budget].greedy[block] = (hit | ~mask).all(dim=1).cpu().numpy()
    return found


def _token_scores(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(-log p of each target, float64; whether it is the most likely token): both ``[rows, time]``."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").reshape(targets.shape)
    return nats.to(torch.float64), logits.argmax(dim=-1) == targets
