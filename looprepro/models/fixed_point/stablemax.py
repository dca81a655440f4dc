"""Stablemax: a softmax without exponentials, s(v) = v + 1 for v >= 0 and 1 / (1 - v) below, p = s / sum(s). In float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def log_stablemax(logits: Tensor) -> Tensor:
    """log p over the last dimension, float64."""
    wide = logits.to(torch.float64)
    # The clamps keep the branch that is not taken finite, so that its gradient is 0 and not 0 * infinity.
    s = torch.where(wide >= 0, wide.clamp(min=0) + 1.0, 1.0 / (1.0 - wide.clamp(max=0)))
    return s.log() - s.sum(dim=-1, keepdim=True).log()


def answer_loss(logits: Tensor, targets: Tensor, ignored: int, kind: str = "stablemax") -> Tensor:
    """Mean cross-entropy over the positions of each row whose target is not ``ignored``: float64 ``[rows]``."""
    counted = targets != ignored
    logs = log_stablemax(logits) if kind == "stablemax" else F.log_softmax(logits.to(torch.float64), dim=-1)
    picked = logs.gather(-1, targets.masked_fill(~counted, 0).unsqueeze(-1)).squeeze(-1)
    return -(picked * counted).sum(dim=-1) / counted.sum(dim=-1).clamp(min=1)
