"""A pack, cells that differ only in their seed, from wherever they stand to their results, trained as one stack.

Every cell has the attempt, files and outcome that it would have alone. The stack is made anew whenever a member leaves it
(it diverged, another attempt took it over, its files cannot be written), from checkpoints written at that step: a pack that
is killed and run again goes through the same stacks, so its numbers are the same to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from looprepro.config.cell import Cell, Execution
from looprepro.config.identity import digest
from looprepro.files.errors import ConfigError, LoopreproError
from looprepro.store.attempt import Attempt
from looprepro.training import checkpoint
from looprepro.training.families import MembersDiverged, Stack, family
from looprepro.training.recorder import ALONE, Recorder
from looprepro.training.run import Outcome, finish, prepare

Member = tuple[Cell, Attempt]
"""One cell of a pack and the attempt that holds it."""
Left = Callable[[Attempt, Outcome | LoopreproError], None]
"""Told once of every member how training left it, as soon as that is known; an error is that member's alone."""


Start = tuple[Member, checkpoint.Checkpoint | None]
MakeStack = Callable[[Sequence[Any]], Stack]


def run_pack(members: Sequence[Member], execution: Execution, stop: Callable[[], str | None], left: Left) -> None:
    """Train ``members``, none of which has a result. Evaluates nothing: a member that ``left`` as done has its result.

    ``stop`` is asked before every step: on a signal's name all write a checkpoint and leave as ``stopped``.
    """
    kind = family(members[0][0])
    if kind.stack is None:
        raise ConfigError(f"cells of the family {members[0][0].family} cannot be stacked", "Use --pack none")
    device = prepare(execution)
    for group in _starts(members):
        recorders = [Recorder(*member, execution, device) for member, _ in group]
        name = _name([member for member, _ in group], [found for _, found in group])
        for recorder, (_, found) in zip(recorders, group, strict=True):
            recorder.resume(found, name)
        while len(recorders) > 1:
            recorders = _stacked(recorders, kind.stack, stop, left)
        for recorder in recorders:  # a stack of one is the plain trainer
            recorder.joins(ALONE)
            _alone(recorder, stop, left)


def _name(members: Sequence[Member], found: Sequence[checkpoint.Checkpoint | None]) -> str:
    """What rows call this pack: its number of members and a hash of their ids. A pack that goes on keeps its name, also when
    members have left it; the last one goes on alone."""
    if len(members) == 1:
        return ALONE
    known = {None if one is None else one.extra.get("packs", [ALONE])[-1] for one in found}
    if len(known) == 1 and not known & {None, ALONE}:
        return str(known.pop())
    return f"{len(members)}-{digest(sorted(attempt.cell_id for _, attempt in members))}"


def _stacked(recorders: list[Recorder], make_stack: MakeStack, stop: Callable[[], str | None], left: Left) -> list[Recorder]:
    """Train as one stack until a member leaves; those that go on, each with its trainer where the stack stood."""
    stack = make_stack([recorder.trainer for recorder in recorders])
    while stack.step < recorders[0].trainer.total:
        signal = stop()
        if signal:
            stack.settle()
            for recorder in _each(recorders, Recorder.save, left):
                left(recorder.attempt, Outcome("stopped", stack.step, signal))
            return []
        stack.warm_up()
        began = time.monotonic()
        try:
            reports = stack.train_step()
        except MembersDiverged as error:
            stack.settle()
            # Before anybody leaves, all write a checkpoint, or a pack killed now would come this far with fewer members.
            going = _each(recorders, Recorder.save, left)
            for place, diverged in error.members.items():
                if recorders[place] in going:
                    going.remove(recorders[place])
                    if _each([recorders[place]], Recorder.diverged, left, [diverged]):
                        left(recorders[place].attempt, Outcome("diverged", diverged.step, diverged.reason))
            return going
        elapsed = time.monotonic() - began
        for recorder in recorders:
            recorder.spent(elapsed, len(recorders))
        going = _each(recorders, Recorder.log, left, reports)
        if recorders[0].is_checkpoint_due(stack.step) or len(going) < len(recorders):
            stack.settle()
            going = _each(going, Recorder.save, left)
        if len(going) < len(recorders):
            return going
    stack.settle()
    # Everybody's last checkpoint before anybody's result, or a pack killed in between would finish with fewer members.
    saved = _each(recorders, Recorder.save, left)
    for recorder in _each(saved, Recorder.done, left):  # first everybody's result, then what takes longer
        left(recorder.attempt, Outcome("done", stack.step))
    return []


def _each(
    recorders: Sequence[Recorder], action: Callable[..., None], left: Left, arguments: Sequence[Any] | None = None
) -> list[Recorder]:
    """Do it for every member (with its own argument); those that could. One whose files refuse leaves alone."""
    could = []
    for place, recorder in enumerate(recorders):
        try:
            action(recorder, *(() if arguments is None else (arguments[place],)))
        except LoopreproError as error:
            left(recorder.attempt, error)
        else:
            could.append(recorder)
    return could


def _alone(recorder: Recorder, stop: Callable[[], str | None], left: Left) -> None:
    outcome: Outcome | LoopreproError
    try:
        outcome = finish(recorder, stop)
    except LoopreproError as error:
        outcome = error
    left(recorder.attempt, outcome)


def _starts(members: Sequence[Member]) -> list[list[Start]]:
    """Members by the step they begin at: all at the newest step of which everybody has a whole checkpoint, else apart.

    A pack that was killed while it wrote its first checkpoints begins again, so that it stays one pack.
    """
    folders = [_by_step(attempt) for _, attempt in members]
    beginning: list[Start] = [(member, None) for member in members]
    if not any(folders):
        return [beginning]
    for step in sorted(set.intersection(*map(set, folders)), reverse=True):
        found = [checkpoint.load_newest(mine[step]) for mine in folders]
        if all(found):
            return [list(zip(members, found, strict=True))]
    newest = [checkpoint.load_newest(attempt.checkpoint_folders()) for _, attempt in members]
    fresh = [_name(members, [None] * len(members))]
    if all(len(mine) <= 1 for mine in folders) and all(one is None or one.extra.get("packs") == fresh for one in newest):
        return [beginning]
    groups: dict[int, list[Start]] = {}
    for member, one in zip(members, newest, strict=True):
        groups.setdefault(0 if one is None else one.step, []).append((member, one))
    if len(groups) > 1:
        starts = "; ".join(
            f"step {step}: seeds {', '.join(str(cell.seed) for (cell, _), _ in group)}" for step, group in groups.items()
        )
        print(f"the members have no step in common, so each group is trained by itself: {starts}", flush=True)
    return list(groups.values())


def _by_step(attempt: Attempt) -> dict[int, list[Path]]:
    """Checkpoint folders by step, of a step the latest attempt's first."""
    found: dict[int, list[Path]] = {}
    for folder in attempt.checkpoint_folders():
        found.setdefault(checkpoint.step_of(folder), []).append(folder)
    return found
