"""The schedules of a language model's training as plain functions of the step (Parcae's public code: sections 3.5, 3.6)."""

from __future__ import annotations

import math

from looprepro.config.cell import LanguageTraining
from looprepro.training.muon import Rates


def rates(training: LanguageTraining, step: int, steps: int) -> Rates:
    """Of the update that leads from ``step`` to ``step + 1`` of ``steps`` (steps count from 0).

    Learning rates: a trapezoid, linear over the last floor(cooldown x steps), all groups of one shape. Muon's momentum rises
    linearly over the first ``muon_momentum_steps``; its weight decay falls linearly to 0.
    """
    falling = math.floor(training.cooldown * steps)
    shape = 1.0
    if step < training.warmup:
        shape = (step + 1) / training.warmup
    elif falling and step > steps - falling:
        shape = max(training.final_lr_ratio, (steps - step) / falling)
    low, high = training.muon_momentum
    risen = min(1.0, step / training.muon_momentum_steps)
    return Rates(
        lr=training.lr * shape,
        muon_lr=training.muon_lr * shape,
        momentum=low + risen * (high - low),
        weight_decay=training.muon_weight_decay * (1.0 - step / steps),
    )
