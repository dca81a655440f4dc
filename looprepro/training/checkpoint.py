"""Checkpoints: tensors as safetensors, the rest as JSON, in one folder that appears complete or not at all.

    checkpoint-00001200/weights.safetensors     every parameter and buffer
                        optimizer.safetensors   Adam's moments, by parameter name
                        average.safetensors     averaged weights, where the cell asks for them
                        state.json              step, seconds so far, SHA-256 of each of the above

Loading runs no code from the file and refuses one whose checksum does not match.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from looprepro.files.atomic import create_folder_with
from looprepro.files.checksum import sha256_file
from looprepro.files.errors import StoreError
from looprepro.files.json_files import pretty_json, read_json

SCHEMA = 1
KEPT = 2
"""Checkpoints kept per attempt while training: the newest, and one older in case that is damaged."""

REQUIRED = frozenset({"weights.safetensors", "optimizer.safetensors"})

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder holds, verified and on the CPU."""

    folder: Path
    step: int
    seconds: float
    tensors: dict[str, dict[str, Tensor]]
    """File stem (weights, optimizer, average) to its tensors."""
    extra: dict[str, Any]

    @property
    def evaluated_weights(self) -> dict[str, Tensor]:
        """The weights that evaluations use: the averaged ones where there are any."""
        return self.tensors["weights"] | self.tensors.get("average", {})


def folder_name(step: int) -> str:
    """``checkpoint-00001200`` for step 1200."""
    return f"checkpoint-{step:08d}"


def step_of(folder: Path) -> int:
    """The step in a checkpoint folder's name."""
    return int(folder.name.rpartition("-")[2])


def save(parent: Path, step: int, seconds: float, tensors: Mapping[str, Tensors], extra: Mapping[str, Any]) -> Path:
    """Write ``parent/checkpoint-<step>`` and drop this parent's older ones beyond :data:`KEPT`. Returns its path."""
    folder = parent / folder_name(step)

    def fill(target: Path) -> None:
        checksums = {}
        for stem, content in tensors.items():
            file = target / f"{stem}.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in content.items()}, file)
            checksums[file.name] = sha256_file(file)
        state = {"schema": SCHEMA, "step": step, "seconds": round(seconds, 3), "sha256": checksums, "extra": dict(extra)}
        (target / "state.json").write_text(pretty_json(state), encoding="utf-8")

    try:
        create_folder_with(folder, fill)
    except SafetensorError as error:  # safetensors reports a full disk as its own error
        raise StoreError(f"cannot write {folder}: {error}", "Free space and run the same command again") from error
    for older in sorted(parent.glob("checkpoint-*"))[:-KEPT]:
        shutil.rmtree(older, ignore_errors=True)  # what is left of it is never valid and gc frees it
    return folder


def load(folder: Path) -> Checkpoint:
    """Read and verify one checkpoint. :class:`StoreError` where a file is missing, truncated or altered."""
    state = read_json(folder / "state.json")
    remedy = f"Remove {folder} and train again: looprepro sweep ... --retrain"
    if not (isinstance(state, dict) and state.get("schema") == SCHEMA and _is_whole(state, folder)):
        raise StoreError(f"{folder}/state.json is not a checkpoint of schema {SCHEMA}", remedy)
    tensors = {}
    for name, checksum in state["sha256"].items():
        file = folder / name
        try:
            if sha256_file(file) != checksum:
                raise StoreError(f"{file} does not match its checksum", remedy)
            tensors[file.stem] = load_file(file)
        except (OSError, SafetensorError) as error:
            raise StoreError(f"{file} cannot be read: {error}", remedy) from error
    return Checkpoint(folder, int(state["step"]), float(state["seconds"]), tensors, dict(state["extra"]))


def _is_whole(state: Mapping[str, Any], folder: Path) -> bool:
    """Whether state.json, which no checksum covers, has every key and is of the step in the folder's name."""
    sums, extra, seconds = state.get("sha256"), state.get("extra"), state.get("seconds")
    return (
        isinstance(sums, dict)
        and sums.keys() >= REQUIRED
        and all(Path(name).name == name for name in sums)
        and isinstance(extra, dict)
        and isinstance(seconds, int | float)
        and isinstance(state.get("step"), int)
        and folder.name == folder_name(state["step"])
    )


def load_newest(folders: Iterable[Path]) -> Checkpoint | None:
    """The first of ``folders`` (newest first) that is whole; the others are named on stdout (the cell's log) and skipped."""
    for folder in folders:
        try:
            return load(folder)
        except StoreError as error:
            print(f"checkpoint skipped, an older one is used: {error.message}", flush=True)
    return None
