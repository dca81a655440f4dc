"""The first step whose loss or gradient norm was not finite, kept on the device until asked for: no step waits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from looprepro.training.families import Diverged


class FirstBad:
    """(step, loss, gradient norm) of the first bad step, zeros while there is none."""

    def __init__(self, device: torch.device) -> None:
        self._seen = torch.zeros(3, dtype=torch.float64, device=device)

    @torch.no_grad()
    def note(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Look at the numbers of ``step`` (from 1) without waiting for them."""
        now = torch.stack((torch.full_like(norm, step, dtype=torch.float64), loss.to(torch.float64), norm.to(torch.float64)))
        is_first = ~now.isfinite().all() & (self._seen[0] == 0)
        self._seen = torch.where(is_first, now, self._seen)

    def check(self) -> None:
        """:class:`Diverged` with the first bad step, if there was one. Waits for the device."""
        step, loss, norm = self._seen.tolist()
        if step:
            raise Diverged(int(step), f"gradient norm is {norm}" if math.isfinite(loss) else f"loss is {loss}")
