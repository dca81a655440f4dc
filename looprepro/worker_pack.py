"""A worker's way with a pack: claim the members that are missing, train them as one stack, end each attempt as its own.

Who claims the first missing member has the pack: others leave it alone until its holder ends, so that two workers never
split one. Members that somebody trains alone are left out; members whose training is finished are only evaluated.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from looprepro.files.errors import LoopreproError, StoreError
from looprepro.files.json_files import read_json
from looprepro.store import Attempt
from looprepro.worker_output import is_out_of_memory, output_into

if TYPE_CHECKING:
    from looprepro.worker import Verdict, Worker
    from looprepro.worker_manifest import Task

RunPack = Callable[..., None]
"""``run_pack(cells and attempts, execution, stop, left)``; see :mod:`looprepro.training.run_pack`."""
PACK_MEMBERS = "pack_members"
"""Key of an attempt's provenance: ids of the cells that were to be trained with it."""


def attend(worker: Worker, pack: Sequence[Task], run_pack: RunPack) -> dict[str, Verdict]:
    """Do what is missing of a pack; where each of its cells stands then."""
    verdicts: dict[str, Verdict] = {task.id: worker.standing(task) for task in pack}
    missing = [task for task in pack if verdicts[task.id] == "open"]
    untrained = [task for task in missing if worker.store.reading(task.id).result is None]
    held = [name for name, verdict in verdicts.items() if verdict == "held"]
    if _are_packed(worker, held, {task.id for task in untrained}):
        return verdicts | {task.id: "held" for task in missing}
    claimed: list[tuple[Task, Attempt]] = []
    if len(untrained) > 1:
        members = [task.id for task in untrained]
        for task in untrained:
            attempt = worker.claim(task, {PACK_MEMBERS: members})
            if isinstance(attempt, Attempt):
                claimed.append((task, attempt))
            elif attempt == "held" and not claimed:
                return verdicts | {task.id: "held" for task in missing}  # another worker is at it
            else:
                verdicts[task.id] = attempt
    if claimed:
        _train(worker, claimed, run_pack)
        for task, attempt in claimed:
            verdicts[task.id] = worker.verdict_after(task, attempt)
    for task in missing:
        if verdicts[task.id] == "open" and not worker.leaving:
            verdicts[task.id] = worker.attend(task)
    return verdicts


def _are_packed(worker: Worker, held: Sequence[str], wanted: set[str]) -> bool:
    """Whether the holder of one of ``held`` has, or is about to claim, some of ``wanted`` as members of the same pack."""
    for name in held:
        highest = worker.store.reading(name).highest
        if highest is None:
            continue
        try:
            said = read_json(worker.store.layout.attempt(name, highest.number) / "provenance.json")
        except StoreError:
            continue  # not a pack's, or gone meanwhile
        if isinstance(said, Mapping) and wanted & set(said.get(PACK_MEMBERS) or ()):
            return True
    return False


def _train(worker: Worker, claimed: Sequence[tuple[Task, Attempt]], run_pack: RunPack) -> None:
    """Train claimed cells together and write the end of each. Raises nothing."""
    tasks = {attempt.cell_id: task for task, attempt in claimed}
    attempts = [attempt for _, attempt in claimed]
    worker.current.extend(attempts)
    try:
        with output_into(*worker.logs(attempts)) as logs:

            def left(attempt: Attempt, outcome: Any) -> None:
                logs.leave(attempt.path / "log.txt")
                task = tasks[attempt.cell_id]
                if isinstance(outcome, LoopreproError):
                    worker.fail(attempt, outcome)
                elif outcome.status == "stopped" or (outcome.status == "done" and task.evaluations and worker.stop()):
                    worker.interrupted(attempt, outcome)
                else:
                    worker.execute(task, attempt)  # which finds it trained

            try:
                for attempt in attempts:
                    print(f"cell {attempt.cell_id}, attempt {attempt.number}, one of {len(attempts)} in a pack", flush=True)
                cells = [(worker.parsed(task)[0], attempt) for task, attempt in claimed]
                run_pack(cells, worker.parsed(claimed[0][0])[1], worker.stop, left)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the other cells of the manifest go on
                hint = f" (as a pack of {len(attempts)}: --pack none needs less)" if is_out_of_memory(error) else ""
                for attempt in attempts:
                    if not attempt.ended:
                        worker.fail(attempt, error, hint)
                traceback.print_exc(file=sys.stdout)
    except (OSError, LoopreproError) as error:
        print(f"pack of {', '.join(tasks)}: {error}", file=sys.stderr, flush=True)
    finally:
        for attempt in attempts:
            if attempt in worker.current:
                worker.current.remove(attempt)
