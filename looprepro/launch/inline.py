"""Run cells in this process, one after the other: for debugging, with breakpoints and the output on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from looprepro.launch.base import Progress, Watch, Work, manifest_of
from looprepro.store import Store

RunManifest = Callable[[Mapping[str, Any]], int]


class InlineExecutor:
    """``run_manifest`` is the caller's (the worker's, bound to ``redirect=False``): this room may not import training.

    Threads are those of this process: set them in the environment before Python starts where rounding matters.
    """

    def __init__(self, run_manifest: RunManifest) -> None:
        self._run_manifest = run_manifest

    def run(self, store: Store, work: Sequence[Work]) -> Iterator[Progress]:
        """Yields once before and once after everything."""
        store.verify((item.id, item.config) for item in work)
        watch = Watch(store, work)
        yield watch.look()
        exit_code = self._run_manifest(manifest_of(store, work, watch.after, wait=True))
        progress = watch.look()
        if exit_code == 0 and len(progress.complete) < len(progress.presence):
            exit_code = 1
        yield replace(progress, finished=True, exit_code=exit_code)
