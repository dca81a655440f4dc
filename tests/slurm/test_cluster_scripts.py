"""up.sh and down.sh: what they start, that they can be called again, and that nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm
SCRIPTS = Path(__file__).resolve().parents[2] / "slurm" / "test-cluster"


def up(state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPTS / "up.sh", state, *options], capture_output=True, text=True, timeout=120, check=False)


def processes_of(state: Path) -> list[str]:
    """Command lines of living processes that name the state folder (a zombie has none)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{state}/" in line:
            found.append(line)
    return found


def test_a_cluster_starts_and_stops_and_leaves_no_process_and_no_file(start_cluster) -> None:
    with start_cluster() as cluster:
        assert cluster.run("sinfo", "--noheader", "--format=%R %T").split() == ["gpu", "idle", "preempt", "idle"]
        assert len(processes_of(cluster.state)) >= 3  # munged, slurmctld, slurmd
        cluster.run("sbatch", "--output=/dev/null", "--wrap=sleep 1000")
    assert processes_of(cluster.state) == []
    assert not cluster.state.exists()


def test_down_ends_the_orphans_of_a_step_daemon_that_was_killed(start_cluster, tmp_path: Path) -> None:
    with start_cluster() as cluster:
        pid_file = tmp_path / "pid"
        job = cluster.run(
            "sbatch",
            "--parsable",
            "--output=/dev/null",
            f"--wrap=echo $$ >{pid_file}.new && mv {pid_file}.new {pid_file}; sleep 1000; true",
        )
        cluster.wait(job.strip(), "RUNNING")
        end = time.monotonic() + 20
        while not pid_file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        shell = int(pid_file.read_text())
        stat = Path(f"/proc/{shell}/stat").read_text()
        os.kill(int((cluster.state / "run" / "slurmd.n1.pid").read_text()), 9)
        os.kill(int(stat.rpartition(") ")[2].split()[1]), 9)  # the step daemon, its parent
        assert Path(f"/proc/{shell}/cmdline").read_bytes() != b""
    left = Path(f"/proc/{shell}/cmdline")
    survived = left.exists() and left.read_bytes() != b""
    if survived:
        os.kill(shell, 9)
    assert not survived


def test_calling_up_again_starts_only_what_died(start_cluster) -> None:
    with start_cluster("--gpus", "0") as cluster:
        pids = {name: (cluster.state / name).read_text() for name in ("munge/munged.pid", "run/slurmctld.pid")}
        os.kill(int((cluster.state / "run" / "slurmd.n1.pid").read_text()), 9)
        again = up(cluster.state)
        assert again.returncode == 0, again.stderr
        assert {name: (cluster.state / name).read_text() for name in pids} == pids
        assert cluster.run("srun", "--partition=gpu", "echo", "alive").strip() == "alive"


def test_other_options_for_a_running_cluster_are_refused(start_cluster) -> None:
    with start_cluster() as cluster:
        refused = up(cluster.state, "--cpus", "7")
        assert refused.returncode == 1
        assert "other options" in refused.stderr


@pytest.mark.parametrize("options", [("--cpus", "many"), ("--colour", "red"), ("--acct", "none"), ("--cpus",)])
def test_a_wrong_option_is_one_line_of_error_and_starts_nothing(
    slurm_installed: None, tmp_path: Path, options: tuple[str, ...]
) -> None:
    refused = up(tmp_path / "s", *options)
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert processes_of(tmp_path / "s") == []


def test_max_array_size_limits_the_index(start_cluster) -> None:
    with start_cluster("--max-array-size", "11") as cluster:
        assert (
            cluster.run("sbatch", "--parsable", "--hold", "--array=0-10", "--output=/dev/null", "--wrap=true")
            .strip()
            .isdecimal()
        )
        with pytest.raises(AssertionError, match="Invalid job array specification"):
            cluster.run("sbatch", "--hold", "--array=11", "--output=/dev/null", "--wrap=true")


def test_pretended_gpus_are_counted_and_given_out(cluster, tmp_path: Path) -> None:
    seen = cluster.run("srun", "--gres=gpu:1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert seen.strip() in ("0", "1")
