"""Counter-based randomness: every draw is a function of (seed, stream, step, row), and of nothing else.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) on torch integers, so that one
implementation serves CPU and GPU. Nothing here has state: validation, logging, micro-batches, ranks, workers and packs
cannot move the training stream, and a resumed run draws what the uninterrupted one would have drawn.

Key = (seed, stream); counter = (block, row low, row high, step). A seed may be a tensor with one seed per row: a stack
of runs draws for each of them what it would have drawn alone.
"""

from __future__ import annotations

import hashlib

import torch

WORDS = 1
"""Training examples."""
STATE = 2
"""The initial state x_0 of the loop, in training."""
DEPTH = 3
"""Sampled recurrence counts; keyed by :data:`DEPTH_SEED`, not by the cell's seed."""
EVALUATION = 4
"""Evaluation examples."""
EVALUATION_STATE = 5
"""x_0 at evaluation."""
PROBES = 6
"""Directions for the geometry."""
NOISE = 10
"""Noise that a reasoner adds to its state in training; the step is the number of the draw within a sample."""
CAPS = 11
"""Drawn caps on the windows of a training sample."""
EXPLORATION = 12
"""Drawn smallest numbers of windows of a training sample."""
EVALUATION_NOISE = 13
"""Noise that a reasoner adds to its state at evaluation."""
AUGMENTATION = 20
"""Which symmetric image of a puzzle."""
PUZZLES = 21
"""Puzzles that are generated; keyed by a task's own seed, not by the cell's."""
ORDER = 22
"""The order of a data set in each epoch."""

DEPTH_SEED = 514229
"""One constant for every run (Parcae's sampler, too, ignores the run's seed), so runs that differ in seed share depths."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Seed = int | torch.Tensor


def philox(
    counter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], key: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four 32-bit words (in int64) per counter. Words broadcast; agrees with the Random123 known-answer vectors."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The 64-bit product overflows int64's sign, not its bits: the high word is exact after the mask.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _KEY_INCREMENTS[0]) & _MASK, (k1 + _KEY_INCREMENTS[1]) & _MASK
    return c0, c1, c2, c3


def words(
    seed: Seed, stream: int, step: int | torch.Tensor, rows: torch.Tensor, count: int, device: torch.device | str | None = None
) -> torch.Tensor:
    """``count`` 32-bit words per row: int64 ``[rows, count]`` in [0, 2^32)."""
    rows = rows.to(device=device, dtype=torch.int64).reshape(-1, 1)
    place = rows.device
    blocks = torch.arange((count + 3) // 4, device=place, dtype=torch.int64).reshape(1, -1)

    def column(value: int | torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(value, dtype=torch.int64, device=place).reshape(-1, 1)

    counter = (blocks, rows & _MASK, (rows >> 32) & _MASK, column(step) & _MASK)
    key = (column(seed) & _MASK, column(stream))
    shape = (rows.shape[0], blocks.shape[1])
    drawn = torch.stack([word.expand(shape) for word in philox(counter, key)], dim=-1)
    return drawn.reshape(shape[0], -1)[:, :count]


def uniform(
    seed: Seed, stream: int, step: int | torch.Tensor, rows: torch.Tensor, count: int, device: torch.device | str | None = None
) -> torch.Tensor:
    """Float64 ``[rows, count]`` in [0, 1), 53 random bits each."""
    pairs = words(seed, stream, step, rows, 2 * count, device).reshape(rows.numel(), count, 2)
    # The type must be named: an integer tensor times a Python float takes the default type, float32, where u rounds to 1.
    return ((pairs[..., 0] >> 5).to(torch.float64) * 67108864.0 + (pairs[..., 1] >> 6)) / 9007199254740992.0


def integers(
    seed: Seed,
    stream: int,
    step: int | torch.Tensor,
    rows: torch.Tensor,
    count: int,
    below: int,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Int64 ``[rows, count]`` in [0, below), by multiply and shift: no value is favoured by more than below / 2^32."""
    if not 1 <= below <= 1 << 16:
        raise ValueError(f"below = {below} must lie in 1..65536, so that the bias stays under 2e-5")
    return (words(seed, stream, step, rows, count, device) * below) >> 32


def truncated_normal(
    seed: Seed,
    stream: int,
    step: int | torch.Tensor,
    rows: torch.Tensor,
    count: int,
    bound: float = 3.0,
    device: torch.device | str | None = None,
) -> torch.Tensor:
    """Float32 ``[rows, count]``: standard normal cut at +-bound (not rescaled), by the inverse distribution function."""
    drawn = words(seed, stream, step, rows, count, device)
    half = torch.special.ndtr(torch.tensor(bound, dtype=torch.float64)).item() - 0.5
    # (x + 1/2) / 2^32 - 1/2 is symmetric about 0 and never hits the ends.
    centred = (drawn.to(torch.float64) + 0.5) * (2.0 * half / 4294967296.0) - half
    return (torch.erfinv(2.0 * centred) * 2.0**0.5).to(torch.float32)


def parameter_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator for the initial value of one parameter: keyed by seed and name, so methods of one seed share every
    weight outside the injection, whatever the order in which modules are built."""
    digest = hashlib.sha256(f"{seed}\x00{name}".encode()).digest()
    return torch.Generator(device="cpu").manual_seed(int.from_bytes(digest[:8], "little") >> 1)
