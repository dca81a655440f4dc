"""Batch scripts against stored ones, and hostile values in them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from looprepro.files.errors import ConfigError
from looprepro.launch.batch_script import batch_script
from looprepro.launch.profile import Profile, load_profile

GOLDEN = Path(__file__).parent / "golden"
HOSTILE_FOLDERS = ["a b", "a;id", "$(touch hacked)", "a&b|c>d", "-rf", "a#b", "~", "a*?[b]", "a${HOME}"]


def script(profile: Profile, folder: Path = Path("/scratch/runs/submissions/looprepro-ab12-1-0"), jobs: int = 1001) -> str:
    return batch_script(
        profile, name="looprepro-ab12-1-0", folder=folder, source=Path("/scratch/runs/sources/0123"), jobs=jobs, threads=1
    )


def everything() -> Profile:
    return Profile(
        name="everything",
        partition="a,b",
        account="lab",
        qos="high",
        constraint="h100&nvlink",
        reservation="course",
        exclude="n1,n[7-9]",
        gpus=2,
        gpu_type="h100",
        cpus=8,
        memory="64G",
        time="2-00:00:00",
        requeue=False,
        python="/opt/a python",
        modules=("cuda/12.8",),
        environment={"TOKEN": 'it\'s; $(id) `id` "x"', "PYTHONPATH": "/extra"},
        setup=("source /opt/profile.sh",),
        container=("apptainer", "exec", "--nv", "/images/my image.sif"),
    )


@pytest.mark.parametrize(("name", "jobs"), [("h100", 1001), ("h100", 999), ("everything", 3)])
def test_the_script_is_the_stored_one(name: str, jobs: int) -> None:
    profile = everything() if name == "everything" else load_profile(name).model_copy(update={"python": "/env/bin/python"})
    assert script(profile, jobs=jobs) == (GOLDEN / f"{name}-{jobs}.sh").read_text()


@pytest.mark.parametrize("folder", HOSTILE_FOLDERS)
def test_a_hostile_folder_reaches_the_shell_as_one_word(folder: str, tmp_path: Path) -> None:
    """The command line of the script is run with srun and Python replaced by a program that prints its words."""
    place = tmp_path / folder
    text = script(load_profile("test").model_copy(update={"python": "printed"}), place, 1)
    words = tmp_path / "srun"
    words.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    words.chmod(0o755)
    path = tmp_path / "script.sh"
    path.write_text(text)
    done = subprocess.run(
        ["bash", str(path)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "7"},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == f"{place}/manifests/7.json"
    assert lines[lines.index("--output") + 1] == f"{place}/logs/%A_%a_%t_log.out"
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize("folder", ["a%jb", "a\nb", "a'b", 'a"b', "a\\b", "a`b"])
def test_a_folder_that_slurm_would_misread_is_refused(folder: str) -> None:
    with pytest.raises(ConfigError, match="--runs"):
        script(load_profile("test"), Path("/scratch") / folder)


def test_values_of_the_environment_are_not_expanded() -> None:
    exports = dict(re.findall(r"^export (\w+)=(.*)$", script(everything()), re.MULTILINE))
    assert shlex.split(exports["TOKEN"]) == ['it\'s; $(id) `id` "x"']
    assert exports["PYTHONPATH"] == "/scratch/runs/sources/0123:/extra"
    assert exports["OMP_NUM_THREADS"] == "1"
