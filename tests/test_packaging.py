"""The wheel holds what the checkout holds: every room, the sweeps, the cluster profiles."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_every_room_and_every_folder_of_data_is_packaged():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "looprepro").rglob("__init__.py")}
    mapped = tool["package-dir"]
    assert set(tool["packages"]) == rooms | set(mapped)
    with_yaml = {p.parent for p in ROOT.glob("sweeps/**/*.yaml")} | {p.parent for p in ROOT.glob("slurm/*.yaml")}
    assert {ROOT / folder for folder in mapped.values()} == with_yaml


@pytest.mark.slow
def test_a_wheel_lists_its_sweeps_and_profiles_without_a_checkout(tmp_path):
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "from looprepro.planning import available_sweeps, load_sweep\n"
        "from looprepro.launch.profile import available_profiles\n"
        "print(*available_sweeps(), *available_profiles(), load_sweep('table1').path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "site",
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "table1" in done.stdout
    assert "h100" in done.stdout
    assert str(tmp_path / "site") in done.stdout
