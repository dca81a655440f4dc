"""What the benchmarks share: the machine in words, the speed of its matrix products, medians, result files."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
GEMM_SIZES = (512, 1024, 2048)


def description(threads: int, dtype: str, device: str = "cpu") -> dict[str, Any]:
    """CPU model, cores, versions, threads, number format; the GPU where it is used."""
    found: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": threads,
        "dtype": dtype,
        "device": device,
    }
    if device == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return found


def cpu_model() -> str:
    """As /proc/cpuinfo names it, where there is one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def seconds(action: Callable[[], Any], repeats: int, device: str = "cpu") -> list[float]:
    """Wall time of each repeat, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        action()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times[1:]


def gemm_peak(device: str = "cpu", dtype: torch.dtype = torch.float32, sizes: Sequence[int] = GEMM_SIZES) -> float:
    """FLOP/s of square products as torch computes them here, the best size's median of 5; float32 at precision "highest"."""
    torch.set_float32_matmul_precision("highest")
    speeds = []
    for size in sizes:
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        speeds.append(2 * size**3 / statistics.median(seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), 5, device)))
    return max(speeds)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def write(name: str, document: dict[str, Any], folder: Path = RESULTS) -> Path:
    """``folder/name.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path
