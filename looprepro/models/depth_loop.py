"""The loop over recurrent steps where every row has its own depth: finished rows leave, the others go on.

Both loops apply ``step`` exactly depth_i times to row i and let gradient flow through its last ``backprop_depth`` steps
only: first n_i = max(T_i - s, 0) steps without gradient, then k_i = T_i - n_i with it, as Parcae does. They differ in
what they compute: :func:`masked` takes every row through max(n) + max(k) steps and discards, :func:`active_rows` wants its
rows sorted and does only the sum of the depths. They agree to rounding, gradients included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from looprepro.files.errors import ConfigError

PerRow = tuple[torch.Tensor, ...]
"""What a step needs of each row besides its state: the drive, value vectors. Sliced with the rows; what all rows share
(the operator, RoPE) belongs into the step itself."""
Step = Callable[[torch.Tensor, PerRow], torch.Tensor]
"""(state, per_row) -> next state, all over the same rows."""


class DepthError(ConfigError):
    """A number of recurrent steps that no loop can do."""


def checked_depths(depths: torch.Tensor | Sequence[int]) -> list[int]:
    """The depths as integers, all at least 1; :class:`DepthError` otherwise."""
    values = depths.tolist() if isinstance(depths, torch.Tensor) else list(depths)
    if not values:
        raise DepthError("a batch without rows has no depths", "Give at least one row")
    if min(values) < 1:
        raise DepthError(f"T = {min(values)}: the loop needs at least one recurrent step", "Use T >= 1")
    return values


def split_depth(depth: int, backprop_depth: int | None) -> tuple[int, int]:
    """(n, k): steps without and with gradient; n + k = depth and k <= backprop_depth (None: all with gradient)."""
    with_gradient = depth if backprop_depth is None else min(depth, backprop_depth)
    return depth - with_gradient, with_gradient


@dataclass(frozen=True)
class Order:
    """Rows by falling depth. ``tensor[order.sort]`` brings rows into loop order, ``tensor[order.restore]`` back."""

    sort: torch.Tensor
    restore: torch.Tensor
    depths: tuple[int, ...]
    """Falling."""


def by_depth(depths: torch.Tensor | Sequence[int], device: torch.device | None = None) -> Order:
    """The stable order of rows by falling depth; indices are int64 ``[rows]`` on ``device``."""
    values = checked_depths(depths)
    sort = sorted(range(len(values)), key=lambda row: -values[row])
    restore = [0] * len(values)
    for place, row in enumerate(sort):
        restore[row] = place
    return Order(
        torch.tensor(sort, dtype=torch.int64, device=device),
        torch.tensor(restore, dtype=torch.int64, device=device),
        tuple(values[row] for row in sort),
    )


def active_rows(
    step: Step,
    state: torch.Tensor,
    per_row: PerRow,
    depths: Sequence[int],
    backprop_depth: int | None = None,
    dim: int = 0,
    unit: int = 1,
) -> torch.Tensor:
    """The state after depth_i steps of each row. ``depths`` must fall (:func:`by_depth`); rows lie along ``dim``.

    With ``unit`` above 1 ``step`` only sees numbers of rows that are multiples of it (or all rows), so that a compiled step
    has few shapes; finished rows are then carried along and what becomes of them is thrown away.

    Rows that are done are split off the end; a split costs no copy forward and one concatenation backward, and happens only
    where the number of active rows changes, not at every step. ``dim`` is 1 for a stack of models ``[stack, rows, ...]``.
    """
    if list(depths) != sorted(checked_depths(depths), reverse=True):
        raise ValueError("active_rows wants falling depths: sort the rows with by_depth")
    quiet, loud = zip(*(split_depth(depth, backprop_depth) for depth in depths), strict=True)
    if quiet[0] > 0:
        with torch.no_grad():
            state = _run(step, state, per_row, quiet, dim, unit)
    return _run(step, state, per_row, loud, dim, unit)


def _run(step: Step, state: torch.Tensor, per_row: PerRow, counts: Sequence[int], dim: int, unit: int) -> torch.Tensor:
    """``counts`` fall and may end in zeros."""
    finished: list[torch.Tensor] = []
    active = carried = len(counts)
    for done in range(counts[0]):
        going = active
        while counts[going - 1] <= done:
            going -= 1
        if going < active:
            keep = min(-(-going // unit) * unit, carried)
            if unit == 1:
                state, left = state.split((going, active - going), dim)
            else:
                left, state = state.narrow(dim, going, active - going), state.narrow(dim, 0, keep)
            finished.append(left)
            per_row = tuple(tensor.narrow(dim, 0, keep) for tensor in per_row)
            active, carried = going, keep
        state = step(state, per_row)
    if not finished:
        return state
    return torch.cat([state.narrow(dim, 0, active), *reversed(finished)], dim)


def masked(
    step: Step, state: torch.Tensor, per_row: PerRow, depths: Sequence[int], backprop_depth: int | None = None, dim: int = 0
) -> torch.Tensor:
    """The plain loop over the whole batch, in which a row keeps its state once it is done. Any order; rows along ``dim``.

    Kept as the oracle of tests and the denominator of benchmarks/depth_loop.py.
    """
    quiet, loud = zip(*(split_depth(depth, backprop_depth) for depth in checked_depths(depths)), strict=True)
    with torch.no_grad():
        state = _run_masked(step, state, per_row, quiet, dim)
    return _run_masked(step, state, per_row, loud, dim)


def _run_masked(step: Step, state: torch.Tensor, per_row: PerRow, counts: Sequence[int], dim: int) -> torch.Tensor:
    limit = torch.tensor(counts, device=state.device).reshape(-1, *(1,) * (state.dim() - dim - 1))
    for done in range(max(counts)):
        state = torch.where(limit > done, step(state, per_row), state)
    return state
