"""An optimiser's moments as named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def moments(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``<moment>.<parameter>`` -> tensor, for every parameter that was ever updated."""
    return {
        f"{key}.{name}": torch.as_tensor(value)
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Put back what :func:`moments` took. ``step`` stays where it is and of its type."""
    for name, parameter in parameters.items():
        state = {key.split(".", 1)[0]: value for key, value in saved.items() if key.split(".", 1)[1] == name}
        if state:
            optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device, parameter.dtype) for key, value in state.items()
            }
