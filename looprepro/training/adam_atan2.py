"""AdamATan2 in plain torch: Adam whose update is an arctangent, so that it has no eps and no scale (Everett et al. 2024).

    p <- p (1 - lr wd);   p <- p - lr / (1 - b1^t) * atan2(m, sqrt(v / (1 - b2^t)))

The form of the recursive models' training code, without its compiled backend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class AdamATan2(torch.optim.Optimizer):
    """Decoupled weight decay; moments ``exp_avg`` and ``exp_avg_sq`` and a ``step`` per parameter, as torch's Adam has them."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            lr, (beta_1, beta_2) = group["lr"], group["betas"]
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            for p in parameters:
                if not self.state[p]:
                    self.state[p] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(p),
                        "exp_avg_sq": torch.zeros_like(p),
                    }
                self.state[p]["step"] += 1.0
            gradients = [p.grad for p in parameters]
            means = [self.state[p]["exp_avg"] for p in parameters]
            squares = [self.state[p]["exp_avg_sq"] for p in parameters]
            torch._foreach_lerp_(means, gradients, 1.0 - beta_1)
            torch._foreach_mul_(squares, beta_2)
            torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta_2)
            if group["weight_decay"]:
                torch._foreach_mul_(parameters, 1.0 - lr * group["weight_decay"])
            for p, mean, square in zip(parameters, means, squares, strict=True):
                count = float(self.state[p]["step"])
                root = square.sqrt().mul_(1.0 / math.sqrt(1.0 - beta_2**count))
                p.add_(torch.atan2(mean, root), alpha=-lr / (1.0 - beta_1**count))
