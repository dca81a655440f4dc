"""The numbers that a paper states, keyed by role, so that one can stand beside ours at every scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from looprepro.planning import Sweep, stated_of


@dataclass(frozen=True)
class Reference:
    """One stated number."""

    value: float
    stated_in: str
    """Its place in the paper, or how it follows from a stated number; where it was found, if not there."""
    source: str = "paper"
    """Whose number it is: "paper", "third party", "other paper", "independent"."""


class References:
    """Lookup by roles. What is not stated is not there."""

    def __init__(self, items: Iterable[tuple[Mapping[str, str], Reference]]) -> None:
        self._items = [(dict(roles), reference) for roles, reference in items]

    def get(self, roles: Mapping[str, str]) -> Reference | None:
        """The number stated for an entry with these roles (axis -> role), or None.

        Axes that only one side names do not count: a table of A5 alone has no column axis for it.
        """
        for stated, reference in self._items:
            if all(roles.get(axis, role) == role for axis, role in stated.items()):
                return reference
        return None


def load_references(sweep: Sweep) -> References:
    """The numbers that the sweep's paper states for its table; none where it states none."""
    row_axis = sweep.layout.rows[0]
    stated = stated_of(sweep)
    return References((number.roles(row_axis), Reference(number.value, number.stated_in, number.source)) for number in stated)
