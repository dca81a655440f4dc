"""A process that has imported torch once and forks a worker per request, so that killing one costs no import.

Reads one JSON object a line on stdin, {"manifest": path, "moment": name or null, "nth": n}, and writes one a line on
stdout: {"pid"} of the forked worker, {"moment"} when it stands at the n-th such moment and waits to be killed, {"code"}
when it is gone (negative: killed by that signal).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import looprepro.worker
from looprepro.config.cell import Cell, Execution, GroupWordsTask, LoopedTransformer, Recurrence, Training
from looprepro.tasks import make_task
from looprepro.training.run import prepare
from looprepro.training.trainer import WordTrainer

ANSWERS = os.dup(1)


def answer(**content: Any) -> None:
    os.write(ANSWERS, (json.dumps(content) + "\n").encode())


def wait_at(moment: str, nth: int) -> None:
    """Make this process stop for ever at the ``nth`` time it comes to ``moment``."""
    seen = 0

    def here() -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            answer(moment=moment)
            while True:
                signal.pause()

    def around(plain: Callable[..., Any], name: str, *, when: str, position: int) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            matches = name in Path(arguments[position]).name
            if matches and when == "before":
                here()
            value = plain(*arguments, **named)
            if matches and when == "after":
                here()
            return value

        return wrapped

    match moment:
        case "checkpoint written, not renamed":
            os.rename = around(os.rename, "checkpoint-", when="before", position=1)
        case "checkpoint renamed, older one not dropped":
            os.rename = around(os.rename, "checkpoint-", when="after", position=1)
        case "older checkpoint half deleted":
            plain = shutil.rmtree

            def half(path: Any, *arguments: Any, **named: Any) -> None:
                if Path(path).name.startswith("checkpoint-"):
                    (Path(path) / "weights.safetensors").unlink()
                    here()
                plain(path, *arguments, **named)

            shutil.rmtree = half  # type: ignore[assignment]
        case "result not published":
            os.link = around(os.link, "result.json", when="before", position=1)
        case "result published, nothing evaluated":
            os.link = around(os.link, "result.json", when="after", position=1)
        case "one evaluation of two":
            os.link = around(os.link, "T", when="after", position=1)
        case "series replaced, no result":
            os.replace = around(os.replace, "series.json", when="after", position=1)
        case "evaluated, end not written":
            os.link = around(os.link, "end.json", when="before", position=1)
        case _:
            raise ValueError(moment)


def warm_up() -> None:
    """One step of training, which imports what PyTorch imports only at its first use (most of a second)."""
    cell = Cell(
        task=GroupWordsTask(group="S3", length=4),
        model=LoopedTransformer(width=8, heads=2, recurrence=Recurrence(mean=2.0, maximum=3)),
        training=Training(steps=1, batch=2),
        seed=0,
    )
    execution = Execution(threads=1, device="cpu")
    WordTrainer(cell, make_task(cell.task, 0, 1, 2), execution, prepare(execution)).train_step()


def main() -> None:
    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                if request["moment"]:
                    wait_at(request["moment"], request["nth"])
                code = looprepro.worker.main([request["manifest"]])
            finally:
                os._exit(code)
        answer(pid=pid)
        _, status = os.waitpid(pid, 0)
        answer(code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
