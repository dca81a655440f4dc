"""The program as people run it: real processes, in a folder of their own, on a sweep of two seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]
Looprepro = Callable[..., Done]


def environment(**more: str) -> dict[str, str]:
    """Without settings of the person who runs the tests, and without a terminal's width."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPREPRO", "COLUMNS", "NO_COLOR"))}
    return kept | {"PYTHONPATH": str(CHECKOUT), "TERM": "dumb"} | more


def command(*arguments: str) -> list[str]:
    """The command line of ``looprepro`` in this environment's Python."""
    return [sys.executable, "-P", "-m", "looprepro", *arguments]


def call(folder: Path, *arguments: str, **more: str) -> Done:
    """Run ``looprepro`` in ``folder`` to its end."""
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def here(tmp_path: Path, tiny_sweep: Callable[..., str]) -> Path:
    """A folder with tiny.yaml."""
    (tmp_path / "tiny.yaml").write_text(tiny_sweep())
    return tmp_path


@pytest.fixture
def looprepro(here: Path) -> Looprepro:
    """``looprepro("plan", "./tiny.yaml", NO_COLOR="1")`` in ``here``."""
    return lambda *arguments, **more: call(here, *arguments, **more)


@pytest.fixture(scope="session")
def run_in() -> Callable[..., Done]:
    """``run_in(folder, "plan", "table1")``: ``looprepro`` in any folder."""
    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_sweep: Callable[..., str]) -> tuple[Path, Done, Done]:
    """A folder in which tiny was run and collected, and what both said. Only for tests that change nothing there."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(tiny_sweep())
    ran = call(folder, "sweep", "./tiny.yaml")
    gathered = call(folder, "collect")
    return folder, ran, gathered


@pytest.fixture
def start(here: Path) -> Callable[..., subprocess.Popen[str]]:
    """``looprepro`` in ``here`` in the background."""

    def begin(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*arguments), cwd=here, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return begin
