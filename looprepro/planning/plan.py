"""plan = what is wanted - what is there, with a reason per cell. Pure: what is there is passed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from looprepro.config.costs import total_steps
from looprepro.config.presence import Presence
from looprepro.planning.estimate import Basis, Estimator
from looprepro.planning.expansion import PlannedCell, PlannedEvaluation
from looprepro.planning.packs import packs

Action = Literal["train", "resume", "evaluate", "none", "wait"]
State = Literal["done", "diverged", "train", "resume", "evaluate", "wait", "needs retraining", "untrained"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Item:
    """One wanted cell: what to do about it, and why."""

    cell: PlannedCell
    action: Action
    state: State
    """Where it is counted; exactly one per cell."""
    reason: str
    missing: tuple[PlannedEvaluation, ...]
    """Wanted evaluations without a valid result."""
    hours: float | None = 0.0
    """Estimated device hours of the action, measuring included; None where nothing is known."""
    basis: Basis | None = None
    """What the estimate rests on; None where nothing runs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every wanted cell once. ``sum(counts.values()) == wanted`` always."""

    items: tuple[Item, ...]

    @property
    def wanted(self) -> int:
        """Distinct cells."""
        return len(self.items)

    @property
    def counts(self) -> dict[State, int]:
        """Cells by state, zeros included."""
        found = Counter(item.state for item in self.items)
        return {state: found[state] for state in STATES}

    @property
    def to_run(self) -> tuple[Item, ...]:
        """What a sweep would start now."""
        return tuple(item for item in self.items if item.action in ("train", "resume", "evaluate"))

    @property
    def packs(self) -> tuple[tuple[Item, ...], ...]:
        """Those of :attr:`to_run` that train as one stack."""
        items = {item.cell.id: item for item in self.to_run if item.action in ("train", "resume")}
        return tuple(tuple(items[cell.id] for cell in pack) for pack in packs(item.cell for item in items.values()))

    @property
    def needs_retraining(self) -> tuple[Item, ...]:
        """Trained cells that lack an evaluation and whose weights are gone: started only on request."""
        return tuple(item for item in self.items if item.state == "needs retraining")

    @property
    def untrained(self) -> tuple[Item, ...]:
        """Cells that other sweeps have to train first."""
        return tuple(item for item in self.items if item.state == "untrained")

    @property
    def evaluations_wanted(self) -> int:
        """Evaluations of all cells together."""
        return sum(len(item.cell.evaluations) for item in self.items)

    @property
    def evaluations_done(self) -> int:
        """Those that have a valid result."""
        return self.evaluations_wanted - sum(len(item.missing) for item in self.items)

    @property
    def device_hours(self) -> float | None:
        """Estimated hours of all that would be started; None where the estimate of any of it is unknown."""
        hours = [item.hours for item in self.to_run]
        return None if None in hours else sum(h for h in hours if h is not None)

    @property
    def bases(self) -> dict[Basis, int]:
        """What the estimates rest on: number of cells to run by basis."""
        return dict(Counter(item.basis for item in self.to_run if item.basis is not None))

    @property
    def complete(self) -> bool:
        """Nothing is missing: every cell is done with all its evaluations, or diverged (which is a result)."""
        return all(item.state in ("done", "diverged") for item in self.items)


def plan(
    cells: Sequence[PlannedCell],
    present: Mapping[str, Presence],
    retrain: bool = False,
) -> Plan:
    """Decide for every cell. A cell that ``present`` does not name has never been tried.

    Failed cells run again. ``retrain``: cells whose weights are gone and that lack an evaluation are trained again;
    without it they are named and never started. Diverged is a result and is never retried.
    """
    nothing = Presence()
    estimator = Estimator(cells, present)
    items = []
    for cell in cells:
        known = present.get(cell.id, nothing)
        missing = tuple(e for e in cell.evaluations if e.id not in known.evaluations)
        action, state, reason = _decide(known, missing, retrain and cell.trains)
        if action in ("train", "resume") and not cell.trains:
            action, state, reason = "none", "untrained", f"not trained ({known.status}), and nothing here trains it"
        hours: float | None = 0.0
        basis: Basis | None = None
        if action in ("train", "resume", "evaluate"):
            left = {"train": 1.0, "evaluate": 0.0}.get(action, 1 - min(known.step / total_steps(cell.cell), 1.0))
            estimate = estimator.hours(cell, missing, left)
            hours, basis = estimate.hours, estimate.basis
        items.append(Item(cell, action, state, reason, missing, hours, basis))
    return Plan(tuple(items))


def budgets(Ts: Iterable[int]) -> str:
    """The T of evaluations in words, "T=8, T=16"; where they differ in other settings only, counted: "T=256 (15 settings)"."""
    return ", ".join(f"T={T}" + (f" ({n} settings)" if n > 1 else "") for T, n in Counter(Ts).items())


def _decide(known: Presence, missing: Sequence[PlannedEvaluation], retrain: bool) -> tuple[Action, State, str]:
    cause = f": {known.cause}" if known.cause else ""
    lacking = f"{budgets(e.evaluation.T for e in missing)} not evaluated"
    status = known.status
    if status == "done":
        if not missing:
            return "none", "done", "done (archived rows)" if known.archived else "done"
        if known.has_weights and not known.archived:
            return "evaluate", "evaluate", lacking
        gone = "only archived rows are left" if known.archived else "its weights are gone"
        if retrain:
            return "train", "train", f"{lacking} and {gone}: training again as asked"
        return "none", "needs retraining", f"needs retraining: {lacking} and {gone}"
    if status == "diverged":
        return "none", "diverged", f"diverged{cause}"
    if status in ("queued", "running"):
        return "wait", "wait", f"running at step {known.step}" if status == "running" and known.step else status
    if status == "planned" and not known.attempts and not known.step:
        return "train", "train", "no attempt yet"
    again = {"failed": f"failed{cause} (retry)", "planned": "not finished"}.get(status, f"{status}{cause}")
    if known.has_weights and missing:
        return "evaluate", "evaluate", f"{again}; {lacking}"
    if known.step:
        return "resume", "resume", f"{again}; resume, step {known.step} was reached"
    return "train", "train", f"{again}; from the start"
