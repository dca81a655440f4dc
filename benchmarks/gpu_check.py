"""Everything that matters on one CUDA device, in under 8 minutes: is it right, how fast is it, what would a paper cell cost.

    python benchmarks/gpu_check.py [--out benchmarks/results] [--minutes 8] [--rehearse]

1. Correctness first, and nothing else runs where it fails: logits and every gradient of a small model on the device against the
   CPU's plain float64 (float32 at precision "highest", and the torch.compile'd core), a divergence reported with its first bad
   step though it is read back later.
2. Speed: a training step at width 512, batch 256, words of length 32, in float32, tf32 and bfloat16, plain and compiled; useful
   matrix arithmetic over the measured peak of square products in the same format; compile time apart.
3. 100 steps of one paper cell of Table 1 (conformal, G = 4, A5) through the real worker in a temporary folder: the curriculum's
   lengths in equal parts, as in the whole run, so 1000 times its seconds is the whole run's.
4. Windows of Fixed-Point Reasoners' Sudoku cell at the paper's size (7M parameters, batch 768, k = 6, bfloat16) on puzzles made
   here: the peak of allocated memory beside the formula of plans, which it may miss by a third, and below the paper's 40 GB.
   The first window also in four parts (execution.micro_batch), whose loss and gradient norm must be the whole's to bfloat16's
   rounding; and windows of the maze cell (900 positions, 244 GB as a whole) in the parts that auto makes: the same limits.

Without a CUDA device it prints one line and exits 0. ``--rehearse`` goes the same way on a CPU at toy size, to test this file.
Runs with Python 3.12 and torch 2.11 and needs no network, but these wheels beside torch and numpy (for a machine without an
index, ``pip download`` them elsewhere and carry them): pydantic, pydantic_core, annotated_types, typing_extensions,
typing_inspection, safetensors, pyyaml. Run it in a checkout with PYTHONPATH set to it; nothing needs to be installed.
The result is gpu_check.json in ``--out``. Exits 1 where a check failed or time ran out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case, first_step, trainer, useful_flops
from machine import description, gemm_peak, spread, write

from looprepro.config.cell import Cell, Execution
from looprepro.config.costs import memory_bytes
from looprepro.config.identity import cell_id
from looprepro.config.puzzles import MazeTask, SudokuTask
from looprepro.config.reasoner_formulas import slots_at_once
from looprepro.planning import expand, load_sweep
from looprepro.store import Store
from looprepro.training.families import Diverged, family
from looprepro.training.run import prepare
from looprepro.worker import run_manifest

PAPER_STEPS, SAMPLE_STEPS = 100_000, 100
WINDOWS, REASONER_BYTES, MEMORY_ERROR, PARTS, PARTS_ERROR = 4, 40e9, 1 / 3, 4, 0.02
SPEED = Case("paper", 512, 8, 2, (32,), 32, 24.0, rows=256)


class Failed(Exception):
    """A number that should agree does not."""


def gradients(device: str, dtype: str, compiled: bool = False) -> list[torch.Tensor]:
    """Logits and gradients of the small model after two updates' worth of nothing: same weights, words, depths, x_0."""
    mine = trainer(CASES["tiny"].cell(dtype), Execution(device="cpu" if device == "cpu" else "cuda", kernels="plain"), device)
    for name, parameter in mine.parameters.items():  # output projections start at zero: give every path a gradient
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)), dtype=torch.float64)
        parameter.data.add_((0.1 * noise).to(parameter.device, parameter.dtype))
    if compiled:
        mine.model.compile_core()
        mine.warm_up()
    batch = mine._ahead.batch(0)
    state = mine.initial_state(0, *batch.tokens.shape)
    logits = mine.model(batch.tokens, mine.sample_depths(0), state)
    mine.task.loss(logits, batch).mean().backward()
    found = [logits, *(p.grad for p in mine.parameters.values() if p.grad is not None)]
    return [x.detach().to("cpu", torch.float64) for x in found]


def largest_error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """Relative to the largest entry of each tensor."""
    pairs = zip(found, exact, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-12)) for a, b in pairs)


def check_numbers(device: str) -> dict[str, float]:
    """Errors of each way to compute, all below 1e-4."""
    exact = gradients("cpu", "float64")
    errors = {"float32": largest_error(gradients(device, "float32"), exact)}
    if device == "cuda":
        errors["float32 compiled"] = largest_error(gradients(device, "float32", compiled=True), exact)
    for name, error in errors.items():
        if not error < 1e-4:
            raise Failed(f"{name} on {device} differs from float64 on the CPU by {error:.1e}")
    return errors


def check_divergence(device: str) -> int:
    """A gradient that turns NaN at the third update, looked at after the sixth: reported as step 3."""
    settings = Execution(device="cpu" if device == "cpu" else "cuda", kernels="plain", read_back_every=6, log_every=1000)
    mine = trainer(CASES["tiny"].cell(), settings, device)
    try:
        for step in range(1, 7):
            if step == 3:
                next(iter(mine.parameters.values())).register_hook(lambda gradient: gradient * float("nan"))
            mine.train_step()
    except Diverged as found:
        if found.step == 3:
            return found.step
        raise Failed(f"divergence at step 3 reported as step {found.step}") from found
    raise Failed("a NaN gradient was not reported")


def speed(case: Case, device: str, dtype: str, tf32: bool, compiled: bool, repeats: int) -> dict[str, Any]:
    """One line of the table: a training step, its spread, and the fraction of the peak in the same format."""
    execution = Execution(device="cpu" if device == "cpu" else "cuda", tf32=tf32, compile=compiled, log_every=10_000)
    prepare(execution)
    cell = case.cell("bfloat16" if dtype == "bfloat16" else "float32")
    mine = trainer(cell, execution, device)
    mine.step = first_step(cell, case.lengths[0])
    mine.warm_up()
    times, fractions = [], []
    product = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    sizes = (2048, 4096, 8192) if device == "cuda" else (256,)
    peak = _peak(device, product, tf32, sizes)
    for repeat in range(repeats + 2):
        drawn = mine.sample_depths(mine.step).tolist()
        _wait(device)
        start = time.perf_counter()
        mine.train_step()
        _wait(device)
        if repeat >= 2:
            times.append(time.perf_counter() - start)
            fractions.append(useful_flops(cell, case.lengths[0], drawn) / times[-1] / peak)
    return {
        "format": "tf32" if tf32 else dtype,
        "compiled": compiled and mine.model._compiled,
        "compile_seconds": mine.compile_seconds,
        "step_seconds": spread(times),
        "fraction": spread(fractions),
        "peak_tflops_per_second": peak / 1e12,
        "memory_gigabytes": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
    }


def _peak(device: str, dtype: torch.dtype, tf32: bool, sizes: tuple[int, ...]) -> float:
    found = gemm_peak(device, dtype, sizes)  # at "highest", which switches tf32 off
    if tf32 and device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        a, b = (torch.randn(sizes[-1], sizes[-1], device=device) for _ in range(2))
        times = []
        for _ in range(6):
            start = time.perf_counter()
            torch.mm(a, b)
            _wait(device)
            times.append(time.perf_counter() - start)
        found = 2 * sizes[-1] ** 3 / statistics.median(times[1:])
    return found


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def paper_cell(rehearse: bool) -> Cell:
    """Table 1, conformal, G = 4, A5, seed 0, with 100 steps."""
    planned = expand(load_sweep("table1"), "smoke" if rehearse else "paper").cells
    wanted = (p.cell for p in planned if p.cell.model.injection.groups == 4 and p.cell.task.group == "A5" and p.cell.seed == 0)
    cell = next(wanted)
    return cell.model_copy(update={"training": cell.training.model_copy(update={"steps": SAMPLE_STEPS, "warmup": 10})})


def through_the_worker(device: str, rehearse: bool) -> dict[str, Any]:
    """The worker's own result for 100 steps, and what the whole run would take."""
    cell = paper_cell(rehearse)
    execution = Execution(device="cpu" if device == "cpu" else "cuda", log_every=50, checkpoint_seconds=300.0)
    with tempfile.TemporaryDirectory() as folder:
        store, identity = Store(Path(folder) / "runs"), cell_id(cell)
        manifest = {
            "store": str(store.root),
            "execution": execution.model_dump(mode="json"),
            "cells": [{"id": identity, "config": cell.model_dump(mode="json"), "evaluations": []}],
        }
        code = run_manifest(manifest, redirect=False)
        result = store.reading(identity).result
    if code != 0 or result is None or result["status"] != "done":
        raise Failed(f"the worker ended with code {code} and result {result}")
    seconds = float(result["wall_seconds"])
    hours = seconds * (PAPER_STEPS / SAMPLE_STEPS) / 3600
    return {"cell": identity, "seconds": seconds, "steps": SAMPLE_STEPS, "predicted_hours": hours, "kernels": result["kernels"]}


def reasoner_cell(puzzle: str, batch: int | None = None) -> Cell:
    """FPRM on ``puzzle`` (fprm_table1 at scale paper) with easy puzzles that are made here: shapes are what costs."""
    cell = expand(load_sweep("fprm_table1"), "paper", only=[f"puzzle={puzzle}", "model=FPRM"], seeds="0").cells[0].cell
    training = cell.training if batch is None else cell.training.model_copy(update={"batch": batch})
    tasks = {
        "sudoku": SudokuTask(side=9, empty=(4, 12), train_items=32),
        "maze": MazeTask(side=30, path=(10, 60), train_items=32),
    }
    return cell.model_copy(update={"task": tasks[puzzle], "training": training})


def settings_of(device: str, micro_batch: Any) -> Execution:
    """How a reasoner's windows run here."""
    return Execution(device="cpu" if device == "cpu" else "cuda", log_every=10_000, micro_batch=micro_batch)


def reasoner_windows(cell: Cell, device: str, micro_batch: Any, count: int) -> dict[str, Any]:
    """Seconds and peak memory of ``count`` training windows, and what the formula says of the memory."""
    execution = settings_of(device, micro_batch)
    before = 0
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    mine = family(cell).trainer(cell, execution, prepare(execution))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        report = mine.train_step()  # raises Diverged where the loss is not finite
        _wait(device)
        times.append(time.perf_counter() - start)
    predicted = memory_bytes(cell, execution)
    assert predicted is not None
    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else None
    return {
        "batch": cell.training.batch,
        "at_once": slots_at_once(cell, execution),
        "loss": report.loss,
        "window_seconds": spread(times[1:]),
        "predicted_gigabytes": predicted / 1e9,
        "peak_gigabytes": None if peak is None else peak / 1e9,
        "fits": None if peak is None else peak < REASONER_BYTES and abs(peak / predicted - 1) < MEMORY_ERROR,
    }


def check_parts(cell: Cell, device: str) -> dict[str, float]:
    """The first window whole and in :data:`PARTS`: relative differences of the loss and of the gradient norm."""
    found = []
    for slots in (None, -(-cell.training.batch // PARTS)):
        execution = settings_of(device, slots)
        report = family(cell).trainer(cell, execution, prepare(execution)).train_step()
        found.append((report.loss, report.grad_norm))
    errors = {name: abs(b / a - 1) for name, a, b in zip(("loss", "grad_norm"), *found, strict=True)}
    for name, error in errors.items():
        if not error < PARTS_ERROR:
            raise Failed(f"{name} of a window in {PARTS} parts differs from the whole's by {error:.1e}")
    return errors


def say_windows(name: str, found: dict[str, Any]) -> None:
    """One line about the windows of ``name``."""
    peak = "not measured" if found["peak_gigabytes"] is None else f"{found['peak_gigabytes']:.1f} GB"
    print(
        f"{name}, {found['at_once']} of {found['batch']} slots at once: window {found['window_seconds']['median']:.3f} s, "
        f"peak memory {peak} (formula {found['predicted_gigabytes']:.1f} GB)",
        flush=True,
    )


def main() -> int:
    """Check, measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--minutes", type=float, default=8.0, help="no new measurement begins after this")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at toy size")
    given = parser.parse_args()
    if not torch.cuda.is_available() and not given.rehearse:
        print("gpu_check: no CUDA device here, nothing measured")
        return 0
    device = "cpu" if given.rehearse else "cuda"
    began = time.monotonic()
    document: dict[str, Any] = {"benchmark": "gpu_check", "machine": description(1, "several", device), "speed": []}
    case, repeats = (CASES["tiny"], 1) if given.rehearse else (SPEED, 5)
    formats = [("float32", False), ("tf32", True), ("bfloat16", False)]
    lines: list[Callable[[], dict[str, Any]]] = [
        lambda dtype=dtype, tf32=tf32, compiled=compiled: speed(case, device, dtype, tf32, compiled, repeats)
        for compiled in ((False,) if given.rehearse else (False, True))
        for dtype, tf32 in formats
    ]
    failed = None
    try:
        document["errors"] = check_numbers(device)
        document["first_bad_step"] = check_divergence(device)
        print("correct: " + ", ".join(f"{name} to {error:.1e}" for name, error in document["errors"].items()), flush=True)
        document["worker"] = worker = through_the_worker(device, given.rehearse)
        print(f"paper cell: {worker['seconds']:.1f} s for {SAMPLE_STEPS} steps, {worker['predicted_hours']:.2f} h for the run")
        count = 2 if given.rehearse else WINDOWS
        sudoku, maze = (reasoner_cell(puzzle, 8 if given.rehearse else None) for puzzle in ("sudoku", "maze"))
        document["parts"] = parts = check_parts(sudoku, device)
        print(f"a window in {PARTS} parts: " + ", ".join(f"{name} to {error:.1e}" for name, error in parts.items()), flush=True)
        for cell, name, slots in ((sudoku, "sudoku", "auto"), (maze, "maze", 3 if given.rehearse else "auto")):
            document[name] = found = reasoner_windows(cell, device, slots, count)
            say_windows(name, found)
            if found["fits"] is False:  # the speeds are worth having all the same
                failed = f"the memory of a window on {name}"
        for line in lines:
            if time.monotonic() - began > 60 * given.minutes:
                failed = "out of time"
                break
            found = line()
            document["speed"].append(found)
            step, part = found["step_seconds"], found["fraction"]
            print(
                f"{found['format']:9} {'compiled' if found['compiled'] else 'eager':9} step {step['median']:.4f} s "
                f"({step['lowest']:.4f}-{step['highest']:.4f}), {part['median']:.2f} of the peak, compiling "
                f"{found['compile_seconds']:.0f} s",
                flush=True,
            )
    except Failed as error:
        failed = str(error)
    document |= {"failed": failed, "seconds": round(time.monotonic() - began, 1)}
    print(
        f"{'failed: ' + failed if failed else 'done'} after {document['seconds']} s; {write('gpu_check', document, given.out)}"
    )
    return int(failed is not None)


if __name__ == "__main__":
    sys.exit(main())
