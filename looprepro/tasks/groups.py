"""Finite groups S_n, A_n and Z_n: numbered elements, multiplication table, a small generating set.

An element is a permutation of 0..n-1, written by its images: p = (p(0), ..., p(n-1)). Products compose as functions,
the right factor first: (a b)(x) = a(b(x)). Ids follow the canonical order, in which the identity is always id 0:

- S_n: all permutations in lexicographic order of their images, so S_3 is 012, 021, 102, 120, 201, 210;
- A_n: the even ones in the same order, so A_4 begins 0123, 0231, 0312, 1032;
- Z_n: id k is the rotation x -> x + k mod n.

Generating sets (the papers state none): S_n by the transposition (0 1) and the n-cycle (0 1 ... n-1); A_n by the 3-cycle
(0 1 2) and the longest odd cycle, (0 1 ... n-1) for odd n and (1 2 ... n-1) for even n, so A_5 by a 3-cycle and a 5-cycle;
Z_n by the rotation by 1.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from looprepro.files.errors import ConfigError

MAX_ORDER = 5040
"""Elements of the largest group: |S_7|, whose table takes 203 MB."""


@dataclass(frozen=True, eq=False)
class FiniteGroup:
    """A finite group as a table. The tensors are shared by all users of the group: do not write into them."""

    name: str
    permutations: Tensor
    """Int64 ``[order, points]``: the images of each element."""
    table: Tensor
    """Int64 ``[order, order]``: ``table[a, b]`` is the id of a b (b acts first)."""
    generators: tuple[int, ...]
    """Ids of a generating set, without repetition."""

    @property
    def order(self) -> int:
        """Number of elements."""
        return self.table.shape[0]

    def prefix_products(self, words: Tensor) -> Tensor:
        """Int64 ``[..., time]`` of element ids to the ids of g_1, g_1 g_2, g_1 g_2 g_3, ..., ``[..., time]``.

        A scan in ceil(log2(time)) table look-ups: after the round with stride s, position t holds the product of the
        last 2s letters up to t, in reading order.
        """
        flat = _flat_table(self.name, words.device)
        products = words
        stride = 1
        while stride < words.shape[-1]:
            joined = flat[products[..., :-stride] * self.order + products[..., stride:]]
            products = torch.cat([products[..., :stride], joined], dim=-1)
            stride *= 2
        return products


@lru_cache(maxsize=8)
def finite_group(name: str) -> FiniteGroup:
    """The group called ``name``: S_n, A_n or Z_n written as "S5", "A5", "Z60".

    Raises :class:`ConfigError` for another name, for a group of one element and for more than :data:`MAX_ORDER`.
    """
    match = re.fullmatch(r"([SAZ])([1-9][0-9]*)", name)
    if match is None:
        raise ConfigError(f"unknown group '{name}'", "Use S, A or Z followed by a number, for example A5, S5, Z60")
    family, points = match[1], int(match[2])
    order = _order(family, points)
    if order < 2:
        raise ConfigError(f"group {name} has one element, so its words hold nothing to learn", "Use S2, A3, Z2 or a larger one")
    if order > MAX_ORDER:
        raise ConfigError(f"group {name} has more than {MAX_ORDER} elements, too many for a table", "Use a smaller group")
    if family == "Z":
        return _cyclic(points)
    listed = torch.tensor(list(itertools.permutations(range(points))), dtype=torch.int64)
    permutations = listed if family == "S" else listed[_even(listed)]
    cycles = _generating_cycles(family, points)
    codes = _codes(permutations)
    generators = torch.searchsorted(codes, _codes(torch.tensor([_cycle(cycle, points) for cycle in cycles])))
    return FiniteGroup(name, permutations, _table(permutations, codes), tuple(dict.fromkeys(generators.tolist())))


def alphabet(group: FiniteGroup, letters: str) -> Tensor:
    """Int64 ``[letters]``: all elements ("all"), or the generating set; the identity joins a set of one (Z_n), whose words
    would all be equal."""
    if letters == "all":
        return torch.arange(group.order, dtype=torch.int64)
    generators = group.generators if len(group.generators) > 1 else (0, *group.generators)
    return torch.tensor(generators, dtype=torch.int64)


@lru_cache(maxsize=16)
def _flat_table(name: str, device: torch.device) -> Tensor:
    """The table of a group as ``[order^2]``, copied to a device once."""
    return finite_group(name).table.reshape(-1).to(device)


def _order(family: str, points: int) -> int:
    if family == "Z":
        return points
    order = 1
    for factor in range(2, points + 1):
        order *= factor
        if order > 2 * MAX_ORDER:  # "S99999" must be refused, not multiplied out
            return order
    return order // 2 if family == "A" and points > 1 else order


def _cyclic(points: int) -> FiniteGroup:
    ids = torch.arange(points, dtype=torch.int64)
    sums = (ids[:, None] + ids[None, :]) % points  # row k: the images of the rotation by k, and also the products k + l
    return FiniteGroup(f"Z{points}", sums, sums, (1,))


def _even(permutations: Tensor) -> Tensor:
    """Bool ``[count]``: an even number of inversions."""
    points = permutations.shape[1]
    first, second = torch.triu_indices(points, points, offset=1)
    return (permutations[:, first] > permutations[:, second]).sum(dim=1) % 2 == 0


def _codes(permutations: Tensor) -> Tensor:
    """Images read as digits in base n: ascending in lexicographic order. Int64 ``[count]``."""
    points = permutations.shape[1]
    weights = torch.tensor([points**k for k in reversed(range(points))], dtype=torch.int64)
    return (permutations * weights).sum(dim=1)


def _table(permutations: Tensor, codes: Tensor) -> Tensor:
    """Compose all pairs point by point, so that memory stays at a few tables even for S_7."""
    points = permutations.shape[1]
    composed = torch.zeros(len(codes), len(codes), dtype=torch.int64)
    for point in range(points):
        composed = composed * points + permutations[:, permutations[:, point]]  # [a, b] -> a(b(point))
    return torch.searchsorted(codes, composed)


def _generating_cycles(family: str, points: int) -> list[range]:
    if family == "S":
        return [range(2), range(points)]
    return [range(3), range(0 if points % 2 else 1, points)]


def _cycle(cycle: range, points: int) -> list[int]:
    """Images of the cycle that sends each point of ``cycle`` to the next one."""
    images = list(range(points))
    for here, there in itertools.pairwise([*cycle, cycle[0]]):
        images[here] = there
    return images
