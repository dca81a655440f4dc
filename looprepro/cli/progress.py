"""Progress of running cells: a bar with an ETA on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from looprepro.cli.options import duration, say

if TYPE_CHECKING:
    from looprepro.launch.base import Progress

LINE_EVERY = 30.0
"""Seconds between plain lines while nothing but steps changes."""


class Display(Protocol):
    """Shows snapshots."""

    def show(self, progress: Progress) -> None:
        """One snapshot; the display decides whether it is worth a line."""


class Estimate:
    """Fraction done over all cells in steps, and the time left at the speed since the start."""

    def __init__(self, steps: Mapping[str, int]) -> None:
        self.steps = steps
        self.total = max(1, sum(steps.values()))
        self._began = time.monotonic()
        self._first: int | None = None

    def done(self, progress: Progress) -> int:
        """Optimiser steps done, finished cells counted whole."""
        return sum(
            self.steps[name] if name in progress.complete else min(known.step, self.steps[name])
            for name, known in progress.presence.items()
        )

    def left(self, done: int) -> float | None:
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
def display(steps: Mapping[str, int]) -> Iterator[Display]:
    """A bar where stderr is a terminal, lines where it is not."""
    if sys.stderr.isatty():
        with _bar(steps) as shown:
            yield shown
    else:
        yield _Lines(steps)


class _Lines:
    def __init__(self, steps: Mapping[str, int]) -> None:
        self._estimate = Estimate(steps)
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
def _bar(steps: Mapping[str, int]) -> Iterator[Display]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    estimate = Estimate(steps)
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
