"""The benchmark scripts run, at toy size, and say what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, cwd=FOLDER.parent, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_the_gpu_check_says_so_in_one_line() -> None:
    assert run("gpu_check.py") == "gpu_check: no CUDA device here, nothing measured\n"


def test_the_fraction_is_useful_operations_over_seconds_and_peak() -> None:
    (result,) = json.loads(run("matmul_fraction.py", "--cases", "tiny", "--repeats", "1", "--json", "--no-file"))["results"]
    peak = max(result["peak_gflops_per_second"].values())
    useful = result["useful_gflops_per_second"]["median"]
    assert result["fraction"]["median"] == pytest.approx(useful / peak)
    assert 0.0 < result["fraction"]["median"] < 1.0


@pytest.mark.slow
def test_ours_and_the_plain_reference_have_the_same_losses() -> None:
    """train_step.py compares them at every step and fails where they differ."""
    (result,) = json.loads(run("train_step.py", "--cases", "tiny", "--repeats", "8", "--json", "--no-file"))["results"]
    assert result["ratio"]["lowest"] > 0


@pytest.mark.slow
def test_the_gpu_check_goes_its_way_on_a_cpu(tmp_path: Path) -> None:
    run("gpu_check.py", "--rehearse", "--out", str(tmp_path))
    found = json.loads((tmp_path / "gpu_check.json").read_text(encoding="utf-8"))
    assert found["failed"] is None
    assert found["first_bad_step"] == 3
    assert found["worker"]["steps"] == 100
    assert (found["sudoku"]["batch"], found["sudoku"]["peak_gigabytes"]) == (8, None)
    assert 0 < found["sudoku"]["loss"] < 100
    assert 0.3 < found["sudoku"]["predicted_gigabytes"] < 0.6  # 7M parameters at 22 bytes, and 8 of 768 rows' activations
    assert (found["sudoku"]["at_once"], found["maze"]["batch"], found["maze"]["at_once"]) == (8, 8, 3)
    assert 0 < found["maze"]["loss"] < 100
    assert max(found["parts"].values()) < 0.02


@pytest.mark.slow
def test_the_stacking_benchmark_counts_cells_per_hour_of_two_processes() -> None:
    found = json.loads(run("stacking.py", "--case", "tiny", "--sizes", "1", "3", "--repeats", "2", "--json", "--no-file"))
    by_run = {result["run"]: result for result in found["results"]}
    assert list(by_run) == ["reference", "1", "3"]
    assert by_run["reference"]["ratio_to_reference"]["median"] == by_run["1"]["ratio_to_one"]["median"] == 1.0
    assert by_run["3"]["cells_per_hour"]["lowest"] > 0


@pytest.mark.slow
def test_a_process_that_dies_ends_the_stacking_benchmark() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "stacking.py"), "--case", "tiny", "--sizes", "0", "--no-file"],
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
        timeout=120,
    )
    assert done.returncode == 1
    assert "a process of the benchmark died" in done.stderr
