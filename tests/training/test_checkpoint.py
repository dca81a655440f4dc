"""Checkpoints appear whole, the previous one is kept, and loading one runs nothing."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from looprepro.files.checksum import sha256_file
from looprepro.files.errors import StoreError
from looprepro.files.json_files import read_json, write_json
from looprepro.training import checkpoint


def tensors(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"weights": {"w": torch.full((2, 3), value)}, "optimizer": {"exp_avg.w": torch.full((2, 3), -value)}}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, 7, 1.25, tensors(0.1), {"cell": "x"})
    found = checkpoint.load(folder)
    assert folder == tmp_path / "checkpoint-00000007"
    assert (found.step, found.seconds, found.extra) == (7, 1.25, {"cell": "x"})
    assert torch.equal(found.tensors["weights"]["w"], torch.full((2, 3), 0.1))
    assert torch.equal(found.tensors["optimizer"]["exp_avg.w"], torch.full((2, 3), -0.1))


def test_the_previous_one_is_kept_and_older_ones_go(tmp_path: Path) -> None:
    for step in (5, 10, 15, 100):
        checkpoint.save(tmp_path, step, 0.0, tensors(float(step)), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000015", "checkpoint-00000100"]


def test_averaged_weights_are_what_evaluations_use(tmp_path: Path) -> None:
    content = tensors(1.0)
    content["weights"]["buffer"] = torch.zeros(1)
    content["average"] = {"w": torch.full((2, 3), 0.5)}
    used = checkpoint.load(checkpoint.save(tmp_path, 1, 0.0, content, {})).evaluated_weights
    assert torch.equal(used["w"], torch.full((2, 3), 0.5))
    assert torch.equal(used["buffer"], torch.zeros(1))


class Bomb:
    """Unpickling it would leave a trace."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.trace, "w")


@pytest.mark.parametrize("disguise", ["pickle", "torch"])
def test_a_pickle_in_disguise_is_refused_unopened(tmp_path: Path, disguise: str) -> None:
    folder = checkpoint.save(tmp_path, 7, 0.0, tensors(1.0), {})
    trace = tmp_path / "trace"
    weights = folder / "weights.safetensors"
    if disguise == "pickle":
        weights.write_bytes(pickle.dumps(Bomb(str(trace))))
    else:
        torch.save({"w": Bomb(str(trace))}, weights)
    state = read_json(folder / "state.json")
    state["sha256"]["weights.safetensors"] = sha256_file(weights)  # even with a checksum that fits
    write_json(folder / "state.json", state)
    with pytest.raises(StoreError, match=r"weights\.safetensors cannot be read"):
        checkpoint.load(folder)
    assert not trace.exists()


def test_a_checkpoint_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, 7, 0.0, tensors(1.0), {})
    elsewhere = tmp_path / "elsewhere.safetensors"
    elsewhere.write_bytes((folder / "weights.safetensors").read_bytes())
    state = read_json(folder / "state.json")
    state["sha256"]["../elsewhere.safetensors"] = sha256_file(elsewhere)
    write_json(folder / "state.json", state)
    with pytest.raises(StoreError, match="not a checkpoint"):
        checkpoint.load(folder)


def test_a_checkpoint_interrupted_before_its_rename_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 5, 0.0, tensors(1.0), {})

    def no_rename(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("looprepro.files.atomic.os.rename", no_rename)
    with pytest.raises(StoreError, match=r"checkpoint-00000010: No space left on device\. The disk is full"):
        checkpoint.save(tmp_path, 10, 0.0, tensors(2.0), {})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00000005"]
