"""What is known of a cell from the files of the store: handed to planning, which never looks itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

Status = Literal["planned", "queued", "running", "done", "diverged", "failed", "lost", "cancelled"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Presence:
    """One cell as it is now. ``planned``: nothing but the wish exists. ``lost``: an attempt died without saying how."""

    status: Status = "planned"
    cause: str = ""
    """Why it failed, diverged or was lost; one line."""
    evaluations: frozenset[str] = field(default_factory=frozenset)
    """Ids of the evaluations that have a valid result."""
    attempts: int = 0
    step: int = 0
    """The last step that an attempt reported."""
    hours: float | None = None
    """Device hours of all attempts together; None where unknown."""
    archived: bool = False
    """Only rows of it remain (its folder under runs/ is gone): it counts as done and cannot be evaluated anew."""
    has_weights: bool = False
    """Trained weights are on disk, so that a missing evaluation needs no training."""

    def complete(self, evaluations: Iterable[str]) -> bool:
        """Nothing is missing: done with all ``evaluations``, or diverged, which is a result and has none."""
        return self.status == "diverged" or (self.status == "done" and self.evaluations.issuperset(evaluations))
