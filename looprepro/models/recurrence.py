"""How many recurrent steps a training sequence gets: inverse distribution functions of one uniform number per row.

Being a pure function of a counter-based uniform, a row's depth depends on nothing but its step and index.
:func:`parcae_depths` alone draws as the public Parcae code does, from a generator seeded by the step.
"""

from __future__ import annotations

import functools
import math

import torch

from looprepro.config.cell import Recurrence
from looprepro.files.errors import ConfigError
from looprepro.models.depth_loop import DepthError

PARCAE_SEED = 514229
_PARCAE_MODULUS = 2**31 - 1


def depths(config: Recurrence, u: torch.Tensor) -> torch.Tensor:
    """int64 ``[rows]``, all >= 1, from float64 ``u [rows]`` in [0, 1).

    ``poisson-conditioned``: Poisson(mean) given 1..maximum (mean 23.5 for 24 and 32). ``poisson-full`` and
    ``poisson-truncated-full``: Poisson clamped below at 1 with no upper cut, ``maximum`` playing no part; for the latter the
    parameter is max(mean, backprop_depth), as in Parcae. ``fixed``: always ``maximum``.
    """
    if config.scheme == "fixed":
        assert config.maximum is not None, "config.Recurrence guarantees it"
        return torch.full(u.shape, config.maximum, dtype=torch.int64, device=u.device)
    if config.scheme == "poisson-conditioned":
        assert config.maximum is not None, "config.Recurrence guarantees it"
        table = _conditioned(config.mean, config.maximum)
        return torch.searchsorted(table.to(u.device), u.to(torch.float64), right=True) + 1
    mean = config.mean
    if config.scheme == "poisson-truncated-full":
        mean = max(mean, float(config.backprop_depth or 0))
    return torch.searchsorted(_unconditioned(mean).to(u.device), u.to(torch.float64), right=True).clamp(min=1)


def _log_mass(mean: float, count: int) -> float:
    return count * math.log(mean) - mean - math.lgamma(count + 1)


@functools.lru_cache(maxsize=64)
def _conditioned(mean: float, maximum: int) -> torch.Tensor:
    """Distribution function at 1..maximum - 1; its insertion point plus 1 is the depth, so never above maximum."""
    logs = torch.tensor([_log_mass(mean, count) for count in range(1, maximum + 1)], dtype=torch.float64)
    return torch.softmax(logs, dim=0).cumsum(dim=0)[:-1].contiguous()


@functools.lru_cache(maxsize=64)
def _unconditioned(mean: float) -> torch.Tensor:
    """Distribution function at 0, 1, ... up to where the rest is below what 53 random bits can resolve."""
    top = math.ceil(mean + 12.0 * math.sqrt(mean) + 40.0)
    masses = torch.tensor([math.exp(_log_mass(mean, count)) for count in range(top)], dtype=torch.float64)
    return masses.cumsum(dim=0)


def parcae_depths(step: int, rows: int, mean: int, backprop_depth: int, rank: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, k), int64 ``[rows]`` each: Parcae's ``poisson-truncated-full`` draw of micro-batch ``step`` on ``rank``.

    total ~ Poisson(max(mean - s, 0) + s) clamped below at 1, k = min(total, s), n = total - k; the generator is seeded with
    (514229 + step)(rank + 1) mod (2^31 - 1).
    """
    if backprop_depth < 1:
        raise DepthError(f"backprop_depth = {backprop_depth}: gradient needs at least one step", "Use backprop_depth >= 1")
    generator = torch.Generator(device="cpu").manual_seed(((PARCAE_SEED + step) * (rank + 1)) % _PARCAE_MODULUS)
    rates = torch.full((rows,), float(max(mean - backprop_depth, 0) + backprop_depth))
    total = torch.poisson(rates, generator=generator).to(torch.int64).clamp(min=1)
    with_gradient = total.clamp(max=backprop_depth)
    return total - with_gradient, with_gradient


def parcae_compatible_depths(config: Recurrence, step: int, rows: int, rank: int = 0) -> torch.Tensor:
    """int64 ``[rows]``: n + k as ``parcae_compat`` draws them; :class:`ConfigError` for a scheme without published vectors."""
    if config.scheme != "poisson-truncated-full" or config.backprop_depth is None or config.mean != int(config.mean):
        raise ConfigError(
            f"parcae_compat imitates poisson-truncated-full with a whole mean, not {config.scheme} with mean {config.mean}",
            "Set model.recurrence.scheme to poisson-truncated-full or parcae_compat to false",
        )
    without, with_gradient = parcae_depths(step, rows, int(config.mean), config.backprop_depth, rank)
    return without + with_gradient
