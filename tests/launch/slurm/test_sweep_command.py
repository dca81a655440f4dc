"""``looprepro sweep --executor slurm`` and its companions as commands, on the pretended cluster or off any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from looprepro.store import Store

PROJECT = Path(__file__).resolve().parents[3]
CELLS = ("table1", "--scale", "smoke", "--seeds", "0", "--only", "group=A5")
OTHER_CELLS = ("table1", "--scale", "smoke", "--seeds", "1", "--only", "group=A5")
SLURM = ("--executor", "slurm", "--profile", "test")


@pytest.fixture
def command(fake_cluster, tmp_path: Path) -> Any:
    """``command(words...)``: run looprepro on ``tmp_path/runs`` and ``results`` with the pretended cluster in reach."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "looprepro", *words],
            env={
                **os.environ,
                **fake_cluster.environment,
                "PYTHONPATH": str(PROJECT),
                "LOOPREPRO_RUNS": str(tmp_path / "runs"),
                "LOOPREPRO_RESULTS": str(tmp_path / "results"),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_dry_run_prints_the_script_and_the_cost_without_any_slurm_and_writes_nothing(
    command: Any, fake_cluster, tmp_path: Path
) -> None:
    done = command("sweep", *CELLS, *SLURM, "--dry-run", PATH="/usr/bin/nowhere")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --array=0-1%2" in done.stdout
    assert "looprepro.job" in done.stdout
    assert "estimated device hours" in done.stdout
    assert done.stdout.count("device hours") >= 6  # the sum, and one line per cell
    assert not (tmp_path / "runs").exists()
    assert fake_cluster.calls() == []


def test_cells_without_an_injection_are_submitted_as_any_others(command: Any, tmp_path: Path) -> None:
    """A fixed-point reasoner has `injection: null`."""
    done = command(
        "sweep", "fprm_norms", "--scale", "paper", "--seeds", "0", "--executor", "slurm", "--profile", "h100", "--dry-run"
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --gres=gpu:h100:1" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_sweep_above_max_hours_is_refused_before_anything_is_submitted(command: Any, fake_cluster, tmp_path: Path) -> None:
    done = command("sweep", *CELLS, *SLURM, "--max-hours", "1e-9")
    assert done.returncode == 2
    assert "more than --max-hours" in done.stderr
    assert fake_cluster.calls() == []
    assert not list(tmp_path.glob("runs/cells/*"))


def test_max_hours_counts_only_what_would_be_submitted_now(command: Any, fake_cluster) -> None:
    assert command("sweep", *CELLS, *SLURM).returncode == 1
    again = command("sweep", *CELLS, *SLURM, "--max-hours", "1e-9")
    assert again.returncode == 1, again.stderr
    assert "5 queued" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--executor", "slurm"), "no cluster profile named"),
        (("--executor", "slurm", "--profile", "h10"), "did you mean 'h100'"),
        (("--executor", "slrum"), "unknown executor"),
        (("--wait",), "--wait belongs to --executor slurm"),
    ],
)
def test_a_misspelt_request_is_one_line_and_exit_code_2(command: Any, fake_cluster, words: tuple[str, ...], said: str) -> None:
    done = command("sweep", *CELLS, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert fake_cluster.calls() == []


def test_submitted_cells_are_queued_in_status_and_cancelled_by_cancel(command: Any, fake_cluster) -> None:
    submitted = command("sweep", *CELLS, *SLURM)
    assert submitted.returncode == 1, submitted.stderr
    assert "submitted: 5 cells in 2 jobs" in submitted.stderr
    shown = json.loads(command("status", *CELLS, "--json").stdout)
    assert shown["sweeps"][0]["status"] == {"queued": 5}
    planned = json.loads(command("plan", *CELLS, "--json").stdout)
    assert (planned["counts"]["wait"], planned["to_run"]) == (5, 0)
    assert {each["reason"] for each in planned["cells"]} == {"queued"}
    cell = shown["sweeps"][0]["missing"][0]["id"]
    assert command("cancel", cell).returncode == 0
    assert fake_cluster.calls("scancel") == []  # its job holds three more
    assert command("cancel", "table1", "--scale", "smoke").returncode == 0
    assert fake_cluster.calls("scancel")[0]["arguments"] == ["1"]
    after = json.loads(command("status", *CELLS, "--json").stdout)
    assert after["sweeps"][0]["status"] == {"cancelled": 5}


def test_a_broken_submission_is_named_and_left_out_of_every_command(command: Any, fake_cluster, tmp_path: Path) -> None:
    assert command("sweep", *CELLS, *SLURM).returncode == 1
    (broken,) = (tmp_path / "runs" / "submissions").iterdir()
    assert command("sweep", *OTHER_CELLS, *SLURM).returncode == 1
    (broken / "submission.json").write_text("")
    remedy = f"Move the folder out of {broken.parent}"
    for words in (("status", *CELLS), ("plan", *CELLS), ("status", *OTHER_CELLS)):
        done = command(*words)
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if str(broken) in line]
        assert line.endswith(remedy)
    assert "5 queued" in done.stdout
    again = command("sweep", *CELLS, *SLURM)
    assert again.returncode == 1
    assert f"5 cells are perhaps submitted as {broken.name}, which cannot be read" in again.stderr
    assert len(fake_cluster.jobs()) == 2
    cancelled = command("cancel")
    assert cancelled.returncode == 0, cancelled.stderr
    assert remedy in cancelled.stderr
    assert "5 cells cancelled" in cancelled.stderr
    broken.rename(tmp_path / "away")
    assert command("status", *CELLS).stderr == ""
    assert "submitted: 5 cells" in command("sweep", *CELLS, *SLURM).stderr


def test_status_asks_no_scheduler_where_nothing_is_submitted(command: Any, fake_cluster) -> None:
    done = command("status", *CELLS)
    assert done.returncode == 0
    assert fake_cluster.calls() == []


def test_status_says_that_the_scheduler_is_silent_and_exits_with_3_where_files_tell_nothing(command: Any, fake_cluster) -> None:
    command("sweep", *CELLS, *SLURM)
    for name in ("squeue", "sacct"):
        fake_cluster.behave(name, code=1, error="Unable to contact slurm controller", forever=True)
    done = command("status", *CELLS)
    assert done.returncode == 3
    assert "does not answer" in done.stderr
    assert "5 queued" in done.stdout


def test_a_cancel_that_the_scheduler_does_not_hear_is_written_down_and_exits_with_3(command: Any, fake_cluster) -> None:
    command("sweep", *CELLS, *SLURM)
    fake_cluster.behave("scancel", code=1, error="scancel: error: Unable to contact slurm controller", act=False)
    done = command("cancel")
    assert done.returncode == 3
    assert "will do nothing" in done.stderr
    shown = json.loads(command("status", *CELLS, "--json").stdout)
    assert shown["sweeps"][0]["status"] == {"cancelled": 5}


def test_logs_of_a_cell_that_has_not_begun_are_those_of_its_job(command: Any, fake_cluster, tmp_path: Path) -> None:
    command("sweep", *CELLS, *SLURM)
    (logs,) = (tmp_path / "runs").glob("submissions/*/logs")
    (logs / "1_0_0_log.err").write_text("module: command not found\n")
    shown = json.loads(command("status", *CELLS, "--json").stdout)
    done = command("logs", shown["sweeps"][0]["missing"][0]["id"])
    assert done.stdout == "module: command not found\n"
    assert command("logs", "nothing-like-it").returncode == 2


def test_watching_ends_when_nothing_is_queued_or_running_any_more(command: Any, fake_cluster, tmp_path: Path) -> None:
    command("sweep", *CELLS, *SLURM)
    environment = {
        **os.environ,
        **fake_cluster.environment,
        "PYTHONPATH": str(PROJECT),
        "LOOPREPRO_RUNS": str(tmp_path / "runs"),
        "LOOPREPRO_RESULTS": str(tmp_path / "results"),
    }
    words = [sys.executable, "-u", "-P", "-m", "looprepro", "status", *CELLS, "--watch"]
    with subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watching:
        assert watching.stdout
        assert "5 queued" in watching.stdout.readline()
        for index in ("0", "1"):
            fake_cluster.set_task(1, index, state="CANCELLED")
        rest, _ = watching.communicate(timeout=40)
    assert watching.returncode == 0
    assert "5 cancelled" in rest


def test_following_a_log_goes_on_until_the_cell_has_ended(command: Any, store: Store, make_work: Any) -> None:
    (item,) = make_work(1)
    store.register(item.id, item.config)
    attempt = store.claim(item.id)
    assert attempt
    (attempt.path / "log.txt").write_text("one\n")
    words = [sys.executable, "-u", "-P", "-m", "looprepro", "logs", item.id[:12], "-f", "--runs", str(store.root)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as following:
        assert following.stdout
        assert following.stdout.readline() == "one\n"
        with open(attempt.path / "log.txt", "a") as log:
            log.write("two\n")
        attempt.end("failed", "as planned", 0)
        rest, _ = following.communicate(timeout=30)
    assert rest == "two\n"
    assert following.returncode == 0
