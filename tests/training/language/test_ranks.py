"""Several real processes that train one cell together: the same numbers as one, exact resuming, and one that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from looprepro.config.cell import Cell, Execution
from looprepro.config.identity import cell_id
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import read_json, write_json
from looprepro.store import Store
from looprepro.training import checkpoint, distributed, texts
from looprepro.training.distributed import Ranks, lead
from looprepro.training.place import place
from looprepro.training.run import run_cell
from looprepro.training.texts import FAMILY

CPU = torch.device("cpu")
ALONE = Execution(threads=1, device="cpu", log_every=1)
TOGETHER = Execution(threads=1, device="cpu", log_every=1, ranks=2)


def test_two_ranks_equal_one_to_rounding_and_a_death_ends_the_step(language_cell, corpus: Path) -> None:
    """Also where one rank alone meets a number that is not finite: both leave the update out, and count it."""
    cell = language_cell(data=corpus, dtype="float64", muon_dtype="float64")
    alone = FAMILY.trainer(cell, ALONE, CPU)
    records = [alone.train_step().record() for _ in range(4)]
    token = _seen_by_rank_1_alone(alone)
    _poison(alone, token)
    records += [alone.train_step().record() for _ in range(2)]
    assert [r["skipped"] for r in records] == [0, 0, 0, 0, 1, 1]
    assert ["loss" in r for r in records] == [True, True, True, True, False, True]
    made = FAMILY.trainer(cell, TOGETHER, CPU)
    (follower,) = made.ranks.followers
    with pytest.raises(StoreError, match=r"rank 1 of the cell ended with exit code -9"), made:
        _compare_then_kill(made, alone, records, token, follower)
    assert not dist.is_initialized()
    assert follower.returncode == -9


def _seen_by_rank_1_alone(made) -> int:
    """A token of the next step in micro-batches 1 and 3, which rank 1 takes, and nowhere else there or in the step after."""
    size, first = made.training.micro_batch, made.step * made.rows
    parts = [made.task.examples(torch.arange(first + size * i, first + size * (i + 1)), 0).tokens for i in range(8)]
    theirs, others = (set(torch.cat([parts[i] for i in chosen]).unique().tolist()) for chosen in ((1, 3), (0, 2, 4, 5, 6, 7)))
    return min(theirs - others)


def _poison(made, token: int) -> None:
    """Not finite where ``token`` is read, and nowhere else."""
    with torch.no_grad():
        for table in made.model.value_tables.values():
            table.weight[token] = torch.nan


def _compare_then_kill(made, alone, records, token, follower) -> None:
    for step, expected in enumerate(records):
        if step == 4:
            _poison(made, token)
            made._started = False  # the next step begins with the other rank taking over these weights
        assert made.train_step().record() == pytest.approx(expected, rel=1e-9)
    for name, p in alone.parameters.items():
        assert torch.allclose(p, made.parameters[name], rtol=1e-9, atol=1e-12, equal_nan=True), name
    follower.kill()
    follower.wait()
    made.train_step()


def _starting(change, monkeypatch) -> None:
    """``change()`` runs between rank 0's look at the corpus and the start of the other rank."""

    def lead_after(count: int, device: torch.device) -> Ranks:
        change()
        return lead(count, device)

    monkeypatch.setattr(texts, "lead", lead_after)


def test_a_follower_does_not_hash_the_corpus_again(language_cell, corpus: Path, monkeypatch) -> None:
    """Nobody reads counts.bin in training: only a checksum would notice that it is gone bad meanwhile."""
    cell = language_cell(data=corpus, dtype="float64", muon_dtype="float64")
    expected = FAMILY.trainer(cell, ALONE, CPU).train_step().record()
    _starting(lambda: (corpus / "counts.bin").write_bytes(b"damaged"), monkeypatch)
    with FAMILY.trainer(cell, TOGETHER, CPU) as made:
        assert made.train_step().record() == pytest.approx(expected, rel=1e-9)
    with pytest.raises(StoreError, match=r"counts.bin does not match its checksum"):
        FAMILY.trainer(cell, ALONE, CPU)


def test_a_follower_that_finds_another_corpus_leaves(language_cell, corpus: Path, monkeypatch, capfd) -> None:
    def exchange() -> None:
        manifest = read_json(corpus / "manifest.json")
        write_json(corpus / "manifest.json", manifest | {"tokenizer_sha256": "0" * 64})

    _starting(exchange, monkeypatch)
    made = FAMILY.trainer(language_cell(data=corpus), TOGETHER, CPU)
    (follower,) = made.ranks.followers
    assert follower.wait(timeout=120) == 1
    with pytest.raises(StoreError, match=r"rank 1 of the cell ended with exit code 1"), made:
        made.train_step()
    assert f"and rank 0 trains on {made.task.content[:12]}" in capfd.readouterr().err


def test_a_trainer_that_cannot_be_built_leaves_no_rank_behind(language_cell, corpus: Path, monkeypatch) -> None:
    led: list[tuple[Ranks, subprocess.Popen[bytes]]] = []

    def lead_and_note(count: int, device: torch.device) -> Ranks:
        ranks = lead(count, device)
        led.append((ranks, ranks.followers[0]))
        return ranks

    def too_large(*_: object) -> None:
        raise MemoryError("weights do not fit")

    monkeypatch.setattr(texts, "lead", lead_and_note)
    monkeypatch.setattr(texts, "LanguageTrainer", too_large)
    try:
        with pytest.raises(MemoryError, match="weights do not fit"):
            FAMILY.trainer(language_cell(data=corpus), TOGETHER, CPU)
        assert not dist.is_initialized()
        assert led[0][1].returncode is not None
    finally:
        led[0][0].leave(failed=True)


def test_ranks_that_do_not_meet_are_ended(monkeypatch, tmp_path: Path) -> None:
    """Also where only some of the others could be started."""
    started: list[subprocess.Popen[bytes]] = []

    def start(rank: int, count: int, rendezvous: str) -> subprocess.Popen[bytes]:
        if count == 3 and rank == 2:
            raise OSError("no more processes")
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    def nobody_comes(*_: object) -> Ranks:
        raise RuntimeError("timed out")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(distributed, "_start", start)
    monkeypatch.setattr(distributed, "join", nobody_comes)
    try:
        for count, reason in ((2, "timed out"), (3, "no more processes")):
            with pytest.raises((RuntimeError, OSError), match=reason) as caught:
                lead(count, CPU)
            assert list(tmp_path.iterdir()) == []
            del caught  # until here it kept the frame of lead, whose end would remove the folder as well
        assert [process.poll() for process in started] == [-9, -9]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_the_place_is_read_off_torchruns_and_slurms_variables(monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    assert place() is None
    slurm = {"STEP_NUM_TASKS": 4, "NTASKS": 4, "PROCID": 3, "LOCALID": 1, "JOB_ID": 7, "JOB_NUM_NODES": 2, "NODEID": 1}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[07-08]")
    monkeypatch.setenv("MASTER_PORT", "29400")
    found = place()
    assert found is not None
    assert (found.rank, found.count, found.local_rank, found.init_method) == (3, 4, 1, "tcp://n07:29400")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    found = place()
    assert found is not None
    assert (found.rank, found.count, found.local_rank, found.init_method) == (1, 2, 1, "env://")
    with pytest.raises(ConfigError, match="wants 3 ranks and was started with 2"):
        lead(3, CPU)


def _stop(attempt, step: int | None) -> str | None:
    return "SIGTERM" if step is not None and attempt.step >= step else None


def trained(tmp_path: Path, name: str, cell: Cell, stops: list[int]) -> tuple[Path, list[dict[str, float]]]:
    """The last checkpoint and the metrics of a run on two ranks that is stopped before the steps given."""
    store = Store(tmp_path / name)
    store.register(cell_id(cell), cell.model_dump(mode="json"))
    lines: dict[int, dict[str, float]] = {}
    for stop in [*stops, None]:
        attempt = store.claim(cell_id(cell))
        assert attempt is not None
        outcome = run_cell(cell, [], TOGETHER, attempt, partial(_stop, attempt, stop))
        attempt.end("interrupted" if stop else outcome.status, "", outcome.step)
        for line in (attempt.path / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            record.pop("seconds")
            lines[record["step"]] = record
    assert outcome.status == "done"
    return next(iter(attempt.checkpoint_folders())), [lines[step] for step in sorted(lines)]


@pytest.mark.slow
def test_a_run_on_two_ranks_resumes_bit_by_bit(language_cell, corpus: Path, tmp_path: Path) -> None:
    cell = language_cell(data=corpus)
    whole, records = trained(tmp_path, "whole", cell, [])
    pieces, resumed = trained(tmp_path, "pieces", cell, [2, 3])
    assert records == resumed
    assert [r["step"] for r in records] == [1, 2, 3, 4, 5, 6]
    expected, found = checkpoint.load(whole), checkpoint.load(pieces)
    for stem in ("weights", "optimizer"):
        assert expected.tensors[stem].keys() == found.tensors[stem].keys()
        assert all(torch.equal(tensor, found.tensors[stem][name]) for name, tensor in expected.tensors[stem].items())


def manifest(tmp_path: Path, cell: Cell) -> Path:
    document = {
        "store": str(tmp_path / "runs"),
        "execution": TOGETHER.model_dump(mode="json"),
        "cells": [{"id": cell_id(cell), "config": cell.model_dump(mode="json"), "evaluations": []}],
    }
    write_json(tmp_path / "manifest.json", document)
    return tmp_path / "manifest.json"


def environment() -> dict[str, str]:
    project = str(Path(__file__).parents[3])
    return {**os.environ, "PYTHONPATH": project, "OMP_NUM_THREADS": "1"}


def finished(tmp_path: Path, cell: Cell) -> bool:
    reading = Store(tmp_path / "runs").reading(cell_id(cell))
    return reading.presence.status == "done" and reading.presence.step == 6 and len(reading.attempts) == 1


@pytest.mark.slow
def test_torchrun_starts_a_worker_and_its_follower(language_cell, corpus: Path, tmp_path: Path) -> None:
    cell = language_cell(data=corpus)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "looprepro.worker", str(manifest(tmp_path, cell))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert finished(tmp_path, cell)


@pytest.mark.slow
@pytest.mark.parametrize("trained_before", [False, True])
def test_the_tasks_of_a_slurm_step_are_a_worker_and_its_follower(
    trained_before: bool, language_cell, corpus: Path, tmp_path: Path
) -> None:
    """Also where nothing is left to train: the follower is sent home all the same."""
    cell = language_cell(data=corpus)
    path = manifest(tmp_path, cell)
    port = str(30_000 + os.getpid() % 20_000)
    shared = {
        "STEP_NUM_TASKS": "2",
        "NTASKS": "2",
        "JOB_ID": "7",
        "JOB_NUM_NODES": "1",
        "NODEID": "0",
        "JOB_NODELIST": "localhost",
    }
    for _ in range(1 + trained_before):
        tasks = []
        for rank in ("0", "1"):
            variables = {f"SLURM_{k}": v for k, v in (shared | {"PROCID": rank, "LOCALID": rank}).items()}
            command = [sys.executable, "-m", "looprepro.worker", str(path)]
            tasks.append(subprocess.Popen(command, env=environment() | variables | {"MASTER_PORT": port}))
        try:
            assert [task.wait(timeout=120) for task in tasks] == [0, 0]
        finally:
            for task in tasks:
                task.kill()
                task.wait()
    assert finished(tmp_path, cell)


def test_a_family_of_single_processes_refuses_ranks(make_cell, begin) -> None:
    cell = make_cell()
    with pytest.raises(ConfigError, match="cells of group_words train in one process, not 2"):
        run_cell(cell, [], TOGETHER, begin(cell), lambda: None)
