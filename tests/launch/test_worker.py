"""A worker runs what is missing, says how each cell ended, and lets one cell's failure be that cell's alone."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from looprepro.config.cell import Execution
from looprepro.files.errors import StoreError
from looprepro.launch.base import Work, manifest_of
from looprepro.store import Attempt, Store
from looprepro.worker import INTERRUPTED, Stop, main, run_manifest

Journal = Callable[[], list[dict[str, Any]]]
MakeWork = Callable[..., list[Work]]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, fake: dict[str, str]) -> ModuleType:
    """fake_training, in this process."""
    for name, value in fake.items():
        if name.startswith("FAKE_"):
            monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("fake_training", Path(__file__).with_name("fake_training.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fake_training", module)
    spec.loader.exec_module(module)
    return module


def _end(store: Store, cell: str, attempt: int = 1) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((store.layout.attempts(cell) / f"{attempt:04d}" / "end.json").read_text())
    return document


def _trained(journal: Journal) -> list[int]:
    return [entry["seed"] for entry in journal() if entry["event"] == "train"]


def test_cells_are_trained_and_evaluated_once_and_a_second_run_does_nothing(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal
) -> None:
    work = make_work(3, budgets=(8, 16))
    manifest = manifest_of(store, work, {})
    assert run_manifest(manifest, run_cell=training.run_cell) == 0
    assert run_manifest(manifest, run_cell=training.run_cell, offset=1) == 0
    assert _trained(journal) == [0, 1, 2]
    for item, presence in zip(work, store.presence(item.id for item in work).values(), strict=True):
        assert (presence.status, presence.attempts, presence.step) == ("done", 1, 5)
        assert presence.evaluations == {name for name, _ in item.evaluations}
    log = (store.layout.attempts(work[0].id) / "0001" / "log.txt").read_text()
    assert "training seed 0 from step 0\n" in log
    assert "a library writes to descriptor 2\n" in log  # below Python's streams
    provenance = json.loads((store.layout.attempts(work[0].id) / "0001" / "provenance.json").read_text())
    assert (provenance["threads"], provenance["dtype"], provenance["seed"]) == (1, "float32", 0)


def test_a_new_evaluation_of_a_finished_cell_retrains_nothing(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal
) -> None:
    assert run_manifest(manifest_of(store, make_work(1), {}), run_cell=training.run_cell) == 0
    (wider,) = make_work(1, budgets=(8, 16))
    assert run_manifest(manifest_of(store, [wider], {}), run_cell=training.run_cell) == 0
    assert [(e["event"], e.get("T")) for e in journal() if e["event"] != "finished"] == [
        ("train", None),
        ("evaluated", 8),
        ("evaluated", 16),
    ]
    assert store.presence([wider.id])[wider.id].attempts == 2


@pytest.mark.parametrize("ranks", [1, 4])
def test_every_rank_of_a_cell_holds_a_device_all_the_time(
    store: Store, make_work: MakeWork, training: ModuleType, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.05")
    (work,) = make_work(1, ranks=ranks, device="cpu")
    assert run_manifest(manifest_of(store, [work], {}), run_cell=training.run_cell) == 0
    end = _end(store, work.id)
    assert end["seconds"] >= 5 * 0.05
    assert end["device_seconds"] == pytest.approx(ranks * end["seconds"], abs=ranks * 1e-3)


@pytest.mark.parametrize(("found", "part"), [({"device": "H100", "cuda": "13.0"}, 2), ({}, 1)])
def test_processes_that_share_a_gpu_are_given_a_part_of_it_and_cores_are_not_shared(
    store: Store,
    make_work: MakeWork,
    training: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, str],
    part: int,
) -> None:
    monkeypatch.setattr("looprepro.worker._device", lambda _wanted: found)
    (work,) = make_work(1)
    assert run_manifest(manifest_of(store, [work], {}, processes=2), run_cell=training.run_cell) == 0
    end = _end(store, work.id)
    assert end["device_seconds"] == pytest.approx(end["seconds"] / part, abs=2e-3)


@pytest.mark.parametrize("wanted", [("auto", "cpu", "auto"), ("cpu", "auto", "cpu")])
def test_each_cell_is_recorded_on_its_own_device_and_counted_there(
    store: Store, make_work: MakeWork, training: ModuleType, monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...]
) -> None:
    asked: list[str] = []

    def device(name: str) -> dict[str, str]:
        asked.append(name)
        return {} if name == "cpu" else {"device": "H100", "driver": "580", "cuda": "13.0"}

    monkeypatch.setattr("looprepro.worker._device", device)
    monkeypatch.setenv("FAKE_STEP_SECONDS", "0.01")
    work = [replace(item, execution=Execution(device=name)) for item, name in zip(make_work(3), wanted, strict=True)]
    assert run_manifest(manifest_of(store, work, {}, processes=2), run_cell=training.run_cell) == 0
    for item in work:
        said = json.loads((store.layout.attempts(item.id) / "0001" / "provenance.json").read_text())
        end = _end(store, item.id)
        if item.execution.device == "cpu":
            assert (said["device"], "driver" in said, "cuda" in said) == (said["cpu"], False, False)
            assert end["device_seconds"] == pytest.approx(end["seconds"], abs=2e-3)
        else:
            assert (said["device"], said["driver"], said["cuda"]) == ("H100", "580", "13.0")
            assert end["device_seconds"] == pytest.approx(end["seconds"] / 2, abs=2e-3)
    assert asked == list(wanted[:2])  # once each: nvidia-smi takes its time


@pytest.mark.parametrize(
    ("behaviour", "cause", "deterministic"),
    [
        ("RAISE", "ValueError: bad number", False),
        ("CONFIG", "impossible. Change it", True),
        ("MEMORY", "MemoryError", True),
        ("EXIT", "SystemExit: left", False),
    ],
)
def test_a_failing_cell_leaves_its_cause_and_the_others_run(
    store: Store,
    make_work: MakeWork,
    training: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str,
    cause: str,
    deterministic: bool,
) -> None:
    monkeypatch.setenv(f"FAKE_{behaviour}", "1")
    work = make_work(3)
    assert run_manifest(manifest_of(store, work, {}), run_cell=training.run_cell) == 1
    presence = list(store.presence(item.id for item in work).values())
    assert [p.status for p in presence] == ["done", "failed", "done"]
    assert presence[1].cause == cause
    assert _end(store, work[1].id)["deterministic"] is deterministic
    log = (store.layout.attempts(work[1].id) / "0001" / "log.txt").read_text()
    assert "Traceback (most recent call last)" in log
    assert "misbehave" in log


def test_the_same_command_again_retries_only_the_failed_cell(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_RAISE", "1")
    work = make_work(3)
    assert run_manifest(manifest_of(store, work, {}), run_cell=training.run_cell) == 1
    # Another worker of the same command: the failure is final for it.
    assert run_manifest(manifest_of(store, work, {}), run_cell=training.run_cell) == 1
    assert _trained(journal) == [0, 1, 2]
    monkeypatch.delenv("FAKE_RAISE")
    after = store.highest_attempts(item.id for item in work)
    assert run_manifest(manifest_of(store, work, after), run_cell=training.run_cell) == 0
    assert _trained(journal) == [0, 1, 2, 1]


def test_training_that_cannot_be_imported_fails_every_cell_deterministically(store: Store, make_work: MakeWork) -> None:
    (item,) = make_work(1)
    assert run_manifest(manifest_of(store, [item], {}, runner="no_such_module:run_cell")) == 1
    assert _end(store, item.id)["deterministic"] is True
    assert store.presence([item.id])[item.id].cause == "ModuleNotFoundError: No module named 'no_such_module'"


def test_done_without_a_trusted_result_is_failed(store: Store, make_work: MakeWork, training: ModuleType) -> None:
    (item,) = make_work(1)
    assert run_manifest(manifest_of(store, [item], {}), run_cell=lambda *_: training.Outcome("done", 5)) == 1
    presence = store.presence([item.id])[item.id]
    assert presence.status == "failed"
    assert "without a result" in presence.cause


def test_a_diverged_cell_is_a_result_and_is_not_run_again(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DIVERGE", "0")
    (item,) = make_work(1)
    for _ in range(2):
        assert run_manifest(manifest_of(store, [item], {}), run_cell=training.run_cell) == 0
    presence = store.presence([item.id])[item.id]
    assert (presence.status, presence.cause) == ("diverged", "loss is nan")
    assert _trained(journal) == [0]


def test_a_config_that_does_not_hash_to_its_id_is_not_trained(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal
) -> None:
    first, second = make_work(2)
    swapped = Work(first.id, second.config, first.evaluations)
    assert run_manifest(manifest_of(store, [swapped], {}), run_cell=training.run_cell) == 1
    assert "hashes to" in store.presence([first.id])[first.id].cause
    assert journal() == []


def test_another_configuration_in_the_folder_is_exit_code_2_and_untouched(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal, capfd: pytest.CaptureFixture[str]
) -> None:
    (item,) = make_work(1)
    store.register(item.id, {**item.config, "seed": 99})
    assert run_manifest(manifest_of(store, [item], {}), run_cell=training.run_cell) == 2
    assert "seed: stored 99, asked 0" in capfd.readouterr().err
    assert journal() == []


def test_a_signal_makes_the_cell_resumable_and_the_next_run_goes_on_from_there(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal
) -> None:
    work = make_work(2, steps=6)

    def until_step_3(cell: Any, evaluations: Any, execution: Any, attempt: Attempt, stop: Any) -> Any:
        beat = attempt.beat

        def beat_and_signal(step: int, total: int) -> None:
            beat(step, total)
            if step == 3:
                os.kill(os.getpid(), signal.SIGUSR2)

        attempt.beat = beat_and_signal  # type: ignore[method-assign]
        return training.run_cell(cell, evaluations, execution, attempt, stop)

    before = signal.getsignal(signal.SIGUSR2)
    assert run_manifest(manifest_of(store, work, {}), run_cell=until_step_3) == INTERRUPTED
    assert signal.getsignal(signal.SIGUSR2) == before
    presence = store.presence([work[0].id])[work[0].id]
    assert (presence.status, presence.step, presence.cause) == ("planned", 3, "interrupted by SIGUSR2")
    assert run_manifest(manifest_of(store, work, {}), run_cell=training.run_cell) == 0
    assert [(e["seed"], e["step"]) for e in journal() if e["event"] == "train"] == [(0, 0), (0, 3), (1, 0)]


def test_a_superseded_attempt_stops_and_writes_nothing_shared(store: Store, make_work: MakeWork, training: ModuleType) -> None:
    (item,) = make_work(1)

    def overtaken(cell: Any, evaluations: Any, execution: Any, attempt: Attempt, stop: Any) -> Any:
        winner = attempt.path.with_name("0002")  # as another node would that thought us dead
        winner.mkdir()
        (winner / "owner.json").write_bytes((attempt.path / "owner.json").read_bytes().replace(b'"host": "', b'"host": "x'))
        return training.run_cell(cell, evaluations, execution, attempt, stop)

    assert run_manifest(manifest_of(store, [item], {}), run_cell=overtaken) == 0
    assert _end(store, item.id)["status"] == "superseded"
    assert not (store.layout.cell(item.id) / "result.json").exists()
    assert store.presence([item.id])[item.id].status == "running"


def test_a_requeued_job_goes_on_at_once_although_its_first_copy_still_beats(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = make_work(1)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    store.register(item.id, item.config)
    first = store.claim(item.id)
    assert first is not None
    owner = json.loads((first.path / "owner.json").read_text())
    (first.path / "owner.json").write_text(json.dumps({**owner, "host": "node-1"}))
    assert run_manifest(manifest_of(store, [item], {}), run_cell=training.run_cell) == 0
    assert journal() == []  # the same job, not requeued: held
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert run_manifest(manifest_of(store, [item], {}), run_cell=training.run_cell) == 0
    assert _trained(journal) == [0]


def test_without_wait_a_held_cell_is_left_to_its_holder_and_with_wait_it_is_waited_for(
    store: Store, make_work: MakeWork, training: ModuleType, journal: Journal
) -> None:
    (item,) = make_work(1)
    store.register(item.id, item.config)
    holder = store.claim(item.id)
    assert holder is not None
    assert run_manifest(manifest_of(store, [item], {}), run_cell=training.run_cell) == 0
    assert journal() == []
    threading.Timer(0.3, holder.end, ["interrupted"]).start()
    assert run_manifest(manifest_of(store, [item], {}, wait=True), run_cell=training.run_cell) == 0
    assert _trained(journal) == [0]


def test_a_stop_request_ends_the_wait(store: Store, make_work: MakeWork, training: ModuleType) -> None:
    (item,) = make_work(1)
    assert store.claim(item.id) is not None
    stop = Stop()
    threading.Timer(0.2, stop.request, ["SIGTERM"]).start()
    start = time.monotonic()
    assert run_manifest(manifest_of(store, [item], {}, wait=True), run_cell=training.run_cell, stop=stop) == INTERRUPTED
    assert time.monotonic() - start < 3


def test_an_evaluation_on_a_full_disk_fails_with_its_cause_and_loses_nothing(
    store: Store, make_work: MakeWork, fake: dict[str, str], tmp_path: Path
) -> None:
    # A real limit of the kernel on the size of files stands in for the full disk: big files fail, small ones pass.
    (tmp_path / "full.py").write_text(
        "import os\n"
        "from fake_training import run_cell as plain\n"
        "from looprepro.files.atomic import write_bytes\n"
        "def run_cell(cell, evaluations, execution, attempt, stop):\n"
        "    plain(cell, [], execution, attempt, stop)\n"
        "    write_bytes(attempt.path / 'checkpoint-00000099' / 'weights', bytes(1_000_000))\n"
    )
    work = make_work(2)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(store, work, {}, runner="full:run_cell")))
    done = subprocess.run(
        [sys.executable, "-m", "looprepro.worker", str(tmp_path / "manifest.json")],
        env={**os.environ, **fake, "PYTHONPATH": f"{fake['PYTHONPATH']}:{tmp_path}"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    for item in work:
        presence = store.presence([item.id])[item.id]
        assert (presence.status, presence.step, presence.has_weights) == ("done", 5, True)
        assert "checkpoint-00000099" in presence.cause
        assert "File too large" in presence.cause
        assert list((store.layout.attempts(item.id) / "0001" / "checkpoint-00000099").iterdir()) == []


def test_an_end_that_cannot_be_written_ends_the_worker(
    store: Store, make_work: MakeWork, training: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> bool:
        raise StoreError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("looprepro.store.attempt.create_exclusive", full)
    work = make_work(3)
    assert run_manifest(manifest_of(store, work, {}, wait=True), run_cell=training.run_cell) == 1
    assert [store.reading(item.id).exists for item in work] == [True, False, False]


def test_a_cell_that_cannot_even_be_given_up_costs_no_other_cell(
    store: Store,
    make_work: MakeWork,
    training: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    work = make_work(3)
    for item in work[:2]:
        store.register(item.id, item.config)
        for _ in range(3):
            attempt = store.claim(item.id)
            assert attempt is not None
            attempt.end("interrupted", "interrupted by SIGUSR2", 0)
    claim = Store.claim

    def first_is_read_only(self: Store, cell_id: str, **given: Any) -> Attempt | None:
        if cell_id == work[0].id:
            raise StoreError("attempts cannot be written: read-only")
        return claim(self, cell_id, **given)

    monkeypatch.setattr(Store, "claim", first_is_read_only)
    manifest = manifest_of(store, work, {}, submission=str(tmp_path / "submission"))
    assert run_manifest(manifest, run_cell=training.run_cell) == 1
    assert f"{work[0].id}: attempts cannot be written: read-only" in capfd.readouterr().err
    presence = list(store.presence(item.id for item in work).values())
    assert [one.attempts for one in presence] == [3, 4, 1]
    assert [one.status for one in presence[1:]] == ["failed", "done"]
    assert "3 attempts in a row without progress" in presence[1].cause


def test_a_manifest_that_is_none_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.json").write_text('{"cells": [{}]}')
    assert main([str(tmp_path / "m.json")]) == 2
    assert capsys.readouterr().err.startswith("not a manifest")


def test_importing_the_worker_and_the_launchers_imports_no_torch() -> None:
    code = "import sys, looprepro.worker, looprepro.launch.local, looprepro.launch.inline; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
