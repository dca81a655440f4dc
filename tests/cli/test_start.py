"""The program starts fast, and its surface (commands, options) changes only on purpose."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import typer

from looprepro.cli.main import app

GOLDEN = Path(__file__).parent / "golden" / "surface.json"
HEAVY = ["torch", "pandas", "pyarrow", "scipy", "matplotlib", "numpy", "pydantic", "yaml"]


def test_help_imports_nothing_heavy() -> None:
    program = f"""
import sys
sys.argv = ["looprepro", "--help"]
from looprepro.cli.main import run
try:
    run()
except SystemExit as exit:
    assert exit.code == 0
print("loaded:", [name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_help_takes_less_than_four_tenths_of_a_second(looprepro: Callable[..., Any]) -> None:
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert looprepro("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time: a busy machine then does not fail the test.
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert median(times) < 0.4, times


def surface() -> dict[str, dict[str, list[str]]]:
    """Command -> parameter -> its option names (arguments: their name in capitals)."""
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = {"": group, **group.commands}
    for name, command in group.commands.items():
        commands |= {f"{name} {below}": found for below, found in getattr(command, "commands", {}).items()}
    return {
        name: {parameter.name: [*parameter.opts, *parameter.secondary_opts] for parameter in command.params}
        for name, command in sorted(commands.items())
    }


def test_the_surface_is_the_recorded_one() -> None:
    """A renamed option breaks somebody's script: change the record only on purpose (and say so in the CHANGELOG)."""
    assert surface() == json.loads(GOLDEN.read_text())


def test_every_command_has_help(looprepro: Callable[..., Any]) -> None:
    for command in surface():
        if command:
            done = looprepro(*command.split(), "-h")
            assert (done.returncode, done.stderr) == (0, "")
            assert command in done.stdout
