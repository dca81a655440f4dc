"""Compile block.c for this machine on first use and load it; where there is no C compiler, say so once.

The shared object lies in the user's cache folder under a name that hashes source, flags, compiler and CPU, so a home folder
shared by unlike machines is safe, and processes that compile at once put equal files in the same place.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

SOURCE = Path(__file__).with_name("block.c")
TYPES = {4: "float", 8: "double"}
"""Bytes of a number to its name in C."""
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fopenmp-simd",
)

_P, _N, _R = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
SIGNATURES: dict[str, tuple[object, ...]] = {
    "rms_norm": (_P, _P, _P, _N, _N, _N, _R),
    "rms_norm_backward": (_P, _P, _P, _P, _P, _P, _P, _P, _N, _N, _N, _R),
    "relu_square": (_P, _P, _N),
    "relu_square_backward": (_P, _P, _P, _N, _R),
    "attention": (_P, _P, _P, _N, _N, _N, _N, _R),
    "attention_backward": (_P, _P, _P, _P, _N, _N, _N, _N, _R),
    "diagonal_step": (_P, _P, _P, _P, _N, _N, _N),
    "diagonal_step_backward": (_P, _P, _P, _P, _P, _P, _N, _N, _N),
    "planar_step": (_P, _P, _P, _P, _N, _N, _N),
    "planar_step_backward": (_P, _P, _P, _P, _P, _P, _N, _N, _N),
}
"""Argument types: pointers, counts, real numbers. block.c says what they mean."""


class CannotCompile(Exception):
    """No compiler, or it failed; the message is one line."""


@functools.cache
def library(number_bytes: int) -> ctypes.CDLL | None:
    """block.c for numbers of 4 or 8 bytes. None, after one warning in this process, where it cannot be compiled."""
    try:
        return load(number_bytes)
    except CannotCompile as failure:
        _warn_once(str(failure))
        return None


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(f"no fused CPU kernels, the plain code runs instead: {message}", RuntimeWarning, stacklevel=3)


def find_compiler() -> str | None:
    """The C compiler that is used: $CC, else the first of cc, gcc and clang on the path."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def load(number_bytes: int) -> ctypes.CDLL:
    """Compile if needed, load, declare the argument types. :class:`CannotCompile` otherwise."""
    try:
        loaded = ctypes.CDLL(str(compiled(number_bytes)))
    except OSError as error:
        raise CannotCompile(f"the compiled library cannot be loaded: {error}") from error
    for name, arguments in SIGNATURES.items():
        getattr(loaded, name).argtypes = arguments
        getattr(loaded, name).restype = ctypes.c_int if name.startswith("attention") else None
    return loaded


def compiled(number_bytes: int) -> Path:
    """Path of the shared object, made if it is not there yet."""
    compiler = find_compiler()
    if compiler is None:
        raise CannotCompile("no C compiler (cc, gcc or clang) on the path")
    command = [*compiler.split(), *FLAGS, *_machine_flags(), f"-DREAL={TYPES[number_bytes]}", f"-DREAL_BYTES={number_bytes}"]
    version = _run([*compiler.split(), "--version"]).splitlines()[0]
    parts = (SOURCE.read_bytes(), " ".join(command).encode(), version.encode(), _cpu().encode())
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24] + ".so"
    folder = cache_folder()
    if not (folder / name).is_file():
        try:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".compiling-") as scratch:
                target = Path(scratch) / name
                _run([*command, str(SOURCE), "-o", str(target), "-lm"])
                _publish(target, folder / name)
        except OSError as error:  # a full disk, above all
            raise CannotCompile(f"{folder}: {error}") from error
    return folder / name


def _publish(made: Path, path: Path) -> None:
    """Give the finished file its name, on the disk first: after a power cut the name never stands for half a library."""
    with open(made, "rb") as file:
        os.fsync(file.fileno())
    os.replace(made, path)


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/looprepro`` or ``~/.cache/looprepro``; where that cannot be written, one of this user's own under the
    system's temporary folder."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache")) / "looprepro"
    for wanted in (chosen, Path(tempfile.gettempdir()) / f"looprepro-{os.getuid()}"):
        try:
            folder = wanted.expanduser()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, RuntimeError):  # the latter: a user without a home folder
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():  # nobody else's code is loaded
            return folder
    raise CannotCompile(f"{chosen} cannot be written")


def _machine_flags() -> list[str]:
    return ["-mcpu=native"] if platform.machine() in ("aarch64", "arm64") else ["-march=native"]


def _cpu() -> str:
    """The CPU's instruction sets, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[0]
        raise CannotCompile(f"{command[0]} failed: {reason}")
    return done.stdout
