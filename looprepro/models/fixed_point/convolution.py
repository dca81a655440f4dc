"""Depthwise convolution of the state over the sequence or its grid; tokens of the prefix pass by it untouched."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looprepro.files.errors import ConfigError
from looprepro.models.initialisation import GeneratorOf, set_uniform


class Convolution1d(nn.Module):
    """Causal: position t sees t - kernel + 1 .. t, and zeros before the first."""

    def __init__(self, width: int, kernel: int, prefix: int) -> None:
        super().__init__()
        self.kernel, self.prefix = kernel, prefix
        self.weight = nn.Parameter(torch.empty(width, 1, kernel))

    def forward(self, z: Tensor) -> Tensor:
        """``[rows, prefix + time, width]`` to the same."""
        front, grid = z.split((self.prefix, z.shape[1] - self.prefix), dim=1)
        moved = F.conv1d(F.pad(grid.mT, (self.kernel - 1, 0)), self.weight, groups=self.weight.shape[0]).mT
        return torch.cat([front, moved.to(front.dtype)], dim=1) if self.prefix else moved

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        """torch's own start: uniform within 1 / sqrt(taps)."""
        set_uniform(self.weight, self.kernel**-0.5, generator(name))


class Convolution2d(nn.Module):
    """An odd window around each cell of the grid, zeros beyond its border."""

    def __init__(self, width: int, kernel: int, prefix: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.kernel, self.prefix, self.grid = kernel, prefix, grid
        self.weight = nn.Parameter(torch.empty(width, 1, kernel, kernel))

    def forward(self, z: Tensor) -> Tensor:
        """``[rows, prefix + height * width of the grid, width]`` to the same."""
        front, cells = z.split((self.prefix, z.shape[1] - self.prefix), dim=1)
        image = cells.mT.unflatten(2, self.grid)
        moved = F.conv2d(image, self.weight, padding=self.kernel // 2, groups=self.weight.shape[0]).flatten(2).mT
        return torch.cat([front, moved.to(front.dtype)], dim=1) if self.prefix else moved

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        """torch's own start: uniform within 1 / sqrt(taps)."""
        set_uniform(self.weight, 1.0 / self.kernel, generator(name))


def make_convolution(
    kind: str, kernel: int | None, width: int, prefix: int, grid: tuple[int, int] | None
) -> Convolution1d | Convolution2d | None:
    """The convolution that a configuration names; :class:`ConfigError` where the task has no grid for a 2d one."""
    if kind == "none":
        return None
    assert kernel is not None, "config.LoopFields fills it in"
    if kind == "1d":
        return Convolution1d(width, kernel, prefix)
    if grid is None:
        raise ConfigError("a 2d convolution needs a task on a grid, and this one is a sequence", "Set model.convolution=1d")
    return Convolution2d(width, kernel, prefix, grid)
