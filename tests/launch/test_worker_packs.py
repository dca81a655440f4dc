"""A worker and its packs, with real training of tiny cells: claims, ends, signals, failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from looprepro.config.cell import BudgetEvaluation, Cell, Execution, GroupWordsTask, LoopedTransformer, Recurrence, Training
from looprepro.config.identity import cell_id, evaluation_id
from looprepro.launch.base import Work, manifest_of
from looprepro.store import Attempt, Store
from looprepro.training.stack import StackedTrainer
from looprepro.worker import INTERRUPTED, Manifest, Stop, run_manifest
from looprepro.worker_pack import PACK_MEMBERS

STEPS = 6
Hook = Callable[[StackedTrainer], None]


@pytest.fixture(autouse=True)
def _determinism_is_put_back() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def work() -> list[Work]:
    """Three cells that differ in their seed."""
    found = []
    for seed in range(3):
        cell = Cell(
            task=GroupWordsTask(group="S3", length=4),
            model=LoopedTransformer(
                width=8,
                heads=2,
                prelude_layers=1,
                core_layers=1,
                coda_layers=1,
                recurrence=Recurrence(mean=2.0, maximum=3),
            ),
            training=Training(steps=STEPS, batch=4, warmup=2, lr=1e-2),
            seed=seed,
        )
        evaluation = BudgetEvaluation(T=2, items=8)
        wanted = ((evaluation_id(evaluation), evaluation.model_dump(mode="json")),)
        execution = Execution(threads=1, device="cpu", log_every=1, pack="seeds")
        found.append(Work(cell_id(cell), cell.model_dump(mode="json"), wanted, execution, STEPS, "p"))
    return found


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hook], list[tuple[int, ...]]]:
    """``steps(hook)``: call ``hook`` before every step of a stack; the seeds of every step that is taken."""

    def install(hook: Hook = lambda _: None) -> list[tuple[int, ...]]:
        taken: list[tuple[int, ...]] = []
        plain = StackedTrainer.train_step

        def train_step(self: StackedTrainer) -> Any:
            hook(self)
            taken.append(tuple(member.cell.seed for member in self.members))
            return plain(self)

        monkeypatch.setattr(StackedTrainer, "train_step", train_step)
        return taken

    return install


def run(store: Store, work: list[Work], stop: Stop | None = None, **settings: Any) -> int:
    after = store.highest_attempts(item.id for item in work)
    return run_manifest(manifest_of(store, work, after, **settings), stop=stop)


def ends(store: Store, work: list[Work]) -> list[tuple[str, int, str]]:
    """(status, step, cause) of each cell's latest attempt."""
    found = []
    for item in work:
        highest = store.reading(item.id).highest
        assert highest is not None
        found.append((highest.status, highest.step, highest.cause))
    return found


def claim(store: Store, item: Work, **provenance: Any) -> Attempt:
    store.register(item.id, item.config)
    attempt = store.claim(item.id, contents={"provenance.json": json.dumps(provenance).encode()})
    assert attempt is not None
    return attempt


def test_a_pack_trains_together_and_each_cell_gets_its_own_files(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    taken = steps()
    assert run(store, work) == 0
    assert taken == [(0, 1, 2)] * STEPS
    assert ends(store, work) == [("done", STEPS, "")] * 3
    packs = set()
    for item in work:
        reading = store.reading(item.id)
        assert reading.result is not None
        assert len(reading.evaluations) == 1
        packs.add(reading.result["pack"])
        folder = store.layout.attempts(item.id) / "0001"
        log = (folder / "log.txt").read_text()
        assert f"cell {item.id}, attempt 1, one of 3 in a pack" in log
        # After it left the pack, its evaluation speaks into its own log alone.
        assert [line.split(",")[0] for line in log.splitlines() if ", attempt 1, 20" in line] == [f"cell {item.id}"]
        assert json.loads((folder / "provenance.json").read_text())[PACK_MEMBERS] == [one.id for one in work]
        end = json.loads((folder / "end.json").read_text())
        assert 0 < end["device_seconds"] < end["seconds"]
    assert len(packs) == 1
    assert run(store, work) == 0
    assert len(taken) == STEPS


def test_a_signal_makes_all_members_checkpoint_and_the_same_command_goes_on(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    stop = Stop()
    taken = steps(lambda stack: stop.request("SIGTERM") if stack.step == 2 else None)
    assert run(store, work, stop) == INTERRUPTED
    assert ends(store, work) == [("interrupted", 3, "interrupted by SIGTERM")] * 3
    assert run(store, work) == 0
    assert taken == [(0, 1, 2)] * STEPS
    results = [store.reading(item.id).result for item in work]
    assert [result and result["resumed"] for result in results] == [1, 1, 1]


def test_a_pack_that_another_worker_begins_is_left_to_it(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    taken = steps()
    # It has claimed its first member and comes to the others in a moment.
    claim(store, work[0], **{PACK_MEMBERS: [item.id for item in work]})
    assert run(store, work) == 0
    assert taken == []
    assert [store.reading(item.id).highest for item in work[1:]] == [None, None]


def test_losing_the_first_member_loses_the_pack(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = steps()
    plain = store.claim
    monkeypatch.setattr(Store, "claim", lambda self, name, **how: None if name == work[0].id else plain(name, **how))
    assert run(store, work) == 0
    assert taken == []
    assert [store.reading(item.id).highest for item in work[1:]] == [None, None]


def test_a_member_that_somebody_trains_alone_is_left_out(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    taken = steps()
    held = claim(store, work[0])
    assert run(store, work) == 0
    assert taken == [(1, 2)] * STEPS
    held.end("interrupted")
    assert run(store, work) == 0
    assert len(taken) == STEPS  # the last one alone, as a plain run
    result = store.reading(work[0].id).result
    assert result is not None
    assert result["pack"] is None


def test_trained_members_are_only_evaluated(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    taken = steps()
    assert run(store, [replace(item, evaluations=()) for item in work[:2]]) == 0
    assert run(store, work) == 0
    assert taken == [(0, 1)] * STEPS
    assert ends(store, work) == [("done", STEPS, "")] * 3
    assert [len(store.reading(item.id).evaluations) for item in work] == [1, 1, 1]


def test_an_error_of_the_stack_ends_every_member_with_its_cause(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    def fail(stack: StackedTrainer) -> None:
        if stack.step == 2:
            raise MemoryError("no more")

    steps(fail)
    assert run(store, work) == 1
    cause = "MemoryError: no more (as a pack of 3: --pack none needs less)"
    assert ends(store, work) == [("failed", 2, cause)] * 3
    log = (store.layout.attempts(work[2].id) / "0001" / "log.txt").read_text()
    assert "Traceback" in log


def test_a_diverging_member_ends_at_once_and_the_others_finish(
    store: Store, work: list[Work], steps: Callable[..., list[tuple[int, ...]]]
) -> None:
    seen = []

    def poison(stack: StackedTrainer) -> None:
        if stack.step == 2 and len(stack.members) == 3:
            stack.parameters["embedding.weight"].data[1] = torch.nan
        if stack.step == 4:
            seen.append(ends(store, work)[1])

    taken = steps(poison)
    assert run(store, work) == 0
    assert seen == [("diverged", 3, "loss is nan")]
    assert ends(store, work) == [("done", STEPS, ""), ("diverged", 3, "loss is nan"), ("done", STEPS, "")]
    assert taken == [(0, 1, 2)] * 3 + [(0, 2)] * 4


def test_units_follow_the_cells_of_the_manifest(store: Store, work: list[Work]) -> None:
    single = replace(work[1], pack="")
    manifest = Manifest.from_document(manifest_of(store, [work[0], single, work[2]], {}))
    assert [[task.id for task in unit] for unit in manifest.units] == [[work[0].id, work[2].id], [work[1].id]]
    document = manifest_of(store, work, {})
    part = Manifest.from_document({**document, "cells": document["cells"][1:]})
    assert [[task.id for task in unit] for unit in part.units] == [[work[1].id, work[2].id]]
