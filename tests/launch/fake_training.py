"""Training in place of the real one: adds numbers step by step, checkpoints, resumes, evaluates; and misbehaves as told.

Environment: FAKE_JOURNAL (file of what was done), FAKE_STEP_SECONDS, FAKE_CHECKPOINT_EVERY (steps),
FAKE_<BEHAVIOUR> = comma-separated seeds: RAISE, CONFIG, MEMORY, HOG (memory, until FAKE_JOURNAL.fed exists), EXIT, KILL
(always), KILL_ONCE, DIVERGE.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from looprepro.config.cell import Cell, Evaluation, Execution
from looprepro.files.errors import ConfigError
from looprepro.files.json_files import read_json, write_json
from looprepro.store import Attempt


@dataclass(frozen=True)
class Outcome:
    status: str
    step: int
    reason: str = ""


def note(**entry: Any) -> None:
    """One line in the journal; O_APPEND keeps lines of several processes whole."""
    path = os.environ.get("FAKE_JOURNAL")
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, (json.dumps({**entry, "pid": os.getpid()}) + "\n").encode())
        os.close(descriptor)


def behaves(name: str, seed: int) -> bool:
    return str(seed) in os.environ.get(f"FAKE_{name}", "").split(",")


def run_cell(
    cell: Cell,
    evaluations: Sequence[tuple[str, Evaluation]],
    execution: Execution,
    attempt: Attempt,
    stop: Callable[[], str | None],
) -> Outcome:
    result = attempt.result()
    if result is None:
        outcome = train(cell, attempt, stop)
        if outcome.status != "done":
            return outcome
        result = attempt.result()
    assert result is not None
    for name, evaluation in evaluations:
        value = result["train"]["total"] * evaluation.T
        metrics = {"accuracy": {"value": value, "items": 1}}
        attempt.write_evaluation(name, {"evaluation": evaluation.model_dump(), "metrics": metrics, "series": {}})
        note(event="evaluated", seed=cell.seed, T=evaluation.T)
    return Outcome("done", result["step"])


def train(cell: Cell, attempt: Attempt, stop: Callable[[], str | None]) -> Outcome:
    seed, steps = cell.seed, cell.training.steps
    every = int(os.environ.get("FAKE_CHECKPOINT_EVERY", "1000000"))
    step, total = 0, 0.5
    for folder in attempt.checkpoint_folders():
        if (folder / "state.json").exists():
            step, total = read_json(folder / "state.json")
            break
    note(event="train", seed=seed, step=step, threads=os.environ.get("OMP_NUM_THREADS"))
    print(f"training seed {seed} from step {step}")
    os.write(2, b"a library writes to descriptor 2\n")
    attempt.beat(step, steps)
    misbehave(seed)

    def checkpoint() -> str:
        write_json(attempt.path / f"checkpoint-{step:08d}" / "state.json", [step, total])
        return f"attempts/{attempt.path.name}/checkpoint-{step:08d}"

    while step < steps:
        if stop():
            checkpoint()
            return Outcome("stopped", step, str(stop()))
        time.sleep(float(os.environ.get("FAKE_STEP_SECONDS", "0")))
        step, total = step + 1, (total * 1.5 + seed) % 7
        attempt.beat(step, steps)
        if step % every == 0:
            checkpoint()
    if behaves("DIVERGE", seed):
        attempt.publish_result({"status": "diverged", "step": step, "reason": "loss is nan", "weights": None, "train": {}})
        return Outcome("diverged", step, "loss is nan")
    document = {"status": "done", "step": step, "reason": "", "weights": checkpoint(), "train": {"total": total}}
    if attempt.publish_result(document):
        note(event="finished", seed=seed)
    return Outcome("done", step)


def misbehave(seed: int) -> None:
    if behaves("RAISE", seed):
        raise ValueError("bad\nnumber")
    if behaves("CONFIG", seed):
        raise ConfigError("impossible", "Change it")
    if behaves("MEMORY", seed):
        raise MemoryError
    if behaves("HOG", seed) and not os.path.exists(f"{os.environ.get('FAKE_JOURNAL')}.fed"):
        held = bytearray(os.urandom(1 << 20)) * 600
        time.sleep(60)
        del held
    if behaves("EXIT", seed):
        sys.exit("left")
    once = f"{os.environ.get('FAKE_JOURNAL')}.killed-{seed}"
    if behaves("KILL", seed) or (behaves("KILL_ONCE", seed) and not os.path.exists(once)):
        open(once, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
