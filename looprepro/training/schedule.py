"""Learning rates as plain functions of the step."""

from __future__ import annotations

import math

from looprepro.config.cell import Training


def learning_rate(training: Training, step: int) -> float:
    """The rate of the update that leads from ``step`` to ``step + 1`` (steps count from 0).

    Linear warm-up reaches the full rate at the ``warmup``-th update, so that no update is lost to a rate of zero.
    """
    if step < training.warmup:
        return training.lr * (step + 1) / training.warmup
    if training.schedule == "constant":
        return training.lr
    floor = training.final_lr_ratio
    if training.schedule == "cosine":
        progress = (step - training.warmup) / max(1, training.steps - training.warmup)
        return training.lr * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress)))
    falling = round(training.cooldown * training.steps)
    remaining = training.steps - step
    return training.lr * (1.0 if remaining >= falling else floor + (1.0 - floor) * remaining / falling)
