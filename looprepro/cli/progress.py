"""Progress of running cells: a bar with an ETA on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from looprepro.cli.options import duration, say

if TYPE_CHECKING:
    from looprepro.launch.base import Progress, Work

LINE_EVERY = 30.0
"""Seconds between plain lines while nothing but steps changes."""


class Display(Protocol):
    """Shows snapshots."""

    def show(self, progress: Progress) -> None:
        """One snapshot; the display decides whether it is worth a line."""


class Estimate:
    """Fraction done over all cells in steps, measuring included, and the time left at the speed since the start."""

    def __init__(self, work: Iterable[Work]) -> None:
        self._work = {item.id: item for item in work}
        self.total = max(1.0, sum(item.steps + item.measuring for item in self._work.values()))
        self._began = time.monotonic()
        self._first: float | None = None

    def done(self, progress: Progress) -> float:
        """Optimiser steps done, and evaluations by what they cost; finished cells counted whole."""
        found = 0.0
        for name, known in progress.presence.items():
            item = self._work[name]
            if name in progress.complete:
                found += item.steps + item.measuring
                continue
            there = sum(evaluation in known.evaluations for evaluation, _ in item.evaluations)
            found += min(known.step, item.steps) + item.measuring * there / max(1, len(item.evaluations))
        return found

    def left(self, done: float) -> float | None:
        """Seconds left; None while unknown."""
        if self._first is None:
            self._first = done
        speed = (done - self._first) / max(1e-9, time.monotonic() - self._began)
        return (self.total - done) / speed if speed > 0 else None


def summary(progress: Progress) -> str:
    """``12/20 cells, 2 running, 1 failed``."""
    counts = Counter(known.status for name, known in progress.presence.items() if name not in progress.complete)
    parts = [f"{len(progress.complete)}/{len(progress.presence)} cells"]
    parts += [f"{counts[status]} {status}" for status in ("running", "queued", "failed", "lost", "cancelled") if counts[status]]
    diverged = sum(known.status == "diverged" for known in progress.presence.values())
    return ", ".join(parts + ([f"{diverged} diverged"] if diverged else []))


@contextmanager
def display(work: Iterable[Work]) -> Iterator[Display]:
    """A bar where stderr is a terminal, lines where it is not."""
    if sys.stderr.isatty():
        with _bar(work) as shown:
            yield shown
    else:
        yield _Lines(work)


class _Lines:
    def __init__(self, work: Iterable[Work]) -> None:
        self._estimate = Estimate(work)
        self._last = ("", 0.0)

    def show(self, progress: Progress) -> None:
        for message in progress.messages:
            say(message)
        left = self._estimate.left(self._estimate.done(progress))
        text, shown_at = self._last
        now = summary(progress)
        if now != text or time.monotonic() - shown_at > LINE_EVERY:
            say(now + (f", about {duration(left)} left" if left and not progress.finished else ""))
            self._last = (now, time.monotonic())


@contextmanager
def _bar(work: Iterable[Work]) -> Iterator[Display]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    estimate = Estimate(work)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=estimate.total, left="")

        class Bar:
            def show(self, progress: Progress_) -> None:
                for message in progress.messages:
                    bar.console.print(message, markup=False, highlight=False)
                done = estimate.done(progress)
                left = estimate.left(done)
                text = f"ETA {duration(left)}" if left else ""
                bar.update(task, completed=done, description=summary(progress), left=text)

        yield Bar()


if TYPE_CHECKING:
    Progress_ = Progress
