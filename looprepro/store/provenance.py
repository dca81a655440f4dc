"""Where numbers come from: commit, uncommitted changes, versions, machine. Computed once per process.

"Dirty" looks only at what can change a number: looprepro/, sweeps/, pyproject.toml and constraints.txt. The
environment is not recorded: it may hold secrets.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import looprepro
from looprepro.files.errors import StoreError
from looprepro.files.json_files import pretty_json
from looprepro.files.places import project_root
from looprepro.store.layout import SCHEMA, read_document

WATCHED = ("looprepro", "sweeps", "pyproject.toml", "constraints.txt")
PACKAGES = ("torch", "numpy", "safetensors", "pydantic", "pyyaml", "scipy", "pandas", "pyarrow", "submitit")
SOURCE_FILE = "source.json"
"""Beside the package in a snapshot of the source: the checkout's state when the snapshot was made."""
_LARGE = 1_000_000
"""Bytes above which an untracked file is named in the diff, not copied into it."""


@dataclass(frozen=True)
class Provenance:
    """One record and the text of the uncommitted changes (empty for a clean tree)."""

    record: dict[str, Any]
    diff: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """What only the worker knows: device, threads, compile."""

    def contents(self) -> dict[str, bytes]:
        """File name -> content, for the attempt's folder."""
        files = {"provenance.json": pretty_json({**self.record, **self.extra}).encode("utf-8")}
        if self.diff:
            files["changes.diff"] = self.diff.encode("utf-8", "surrogateescape")
        return files


def provenance(**extra: Any) -> Provenance:
    """Of this process; ``extra`` joins the record (device, threads, compile, ...)."""
    record, diff = _collected()
    return Provenance(record, diff, extra)


@cache
def _collected() -> tuple[dict[str, Any], str]:
    project = project_root()
    source, diff = snapshot_state(project) or source_state(project)
    record = {
        "schema": SCHEMA,
        **source,
        "versions": versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cpu_numbers": cpu_numbers(),
        "device": cpu_model(),
        "cores": os.cpu_count(),
    }
    return record, diff


def snapshot_state(project: Path) -> tuple[dict[str, Any], str] | None:
    """(state, diff) as :func:`source_state` gave them at submission, with the hash as ``source``; None outside a snapshot."""
    document = read_document(project / SOURCE_FILE)
    if document is None:
        return None
    state = {key: document.get(key) for key in ("commit", "dirty", "dirty_files", "git", "source")}
    diff = project / "changes.diff"
    return state, diff.read_text(encoding="utf-8", errors="surrogateescape") if diff.is_file() else ""


def source_state(project: Path) -> tuple[dict[str, Any], str]:
    """({"commit", "dirty", "dirty_files", "git"}, diff) of the checkout that holds the package.

    ``commit`` and ``dirty`` are None where the package is not in a checkout of its own (an installed wheel, even inside
    somebody's repository) or git is missing; ``git`` says which. The diff covers untracked files as well.
    """
    unknown: dict[str, Any] = {"commit": None, "dirty": None, "dirty_files": []}
    try:
        top = git(project, "rev-parse", "--show-toplevel").strip()
        if Path(top).resolve() != project.resolve():
            return {**unknown, "git": "not in a checkout of its own"}, ""
        status = git(project, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *WATCHED)
    except StoreError as error:
        return {**unknown, "git": str(error)}, ""
    try:
        commit: str | None = git(project, "rev-parse", "--verify", "HEAD").strip()
    except StoreError:
        commit = None  # no commit yet
    entries = [(entry[:2], entry[3:]) for entry in status.split("\0") if entry]
    parts = []
    if entries and commit:
        parts.append(git(project, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD", "--", *WATCHED))
    added = [name for code, name in entries if code == "??" or (commit is None and "D" not in code)]
    parts += [_as_new_file(project, name) for name in added]
    record = {
        "commit": commit,
        "dirty": bool(entries),
        "dirty_files": sorted(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for _, name in entries),
        "git": "",
    }
    return record, "".join(parts)


def versions() -> dict[str, str]:
    """Installed versions of the packages that numbers depend on, and ours; packages that are absent are left out."""
    found = {"looprepro": looprepro.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or platform.machine()
    known = _cpu_info()
    names = (known[key] for key in ("model name", "Model", "cpu model") if key in known)
    return next(names, platform.processor() or platform.machine())


def cpu_numbers() -> str:
    """Vendor, family, model and stepping, where the system tells: virtual machines give processors that differ one name."""
    known = _cpu_info()
    keys = ("vendor_id", "cpu family", "model", "stepping")
    return ", ".join(f"{key.removeprefix('cpu ')} {known[key]}" for key in keys if key in known)


def _cpu_info() -> dict[str, str]:
    """Of the first processor in /proc/cpuinfo; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return found


def _as_new_file(project: Path, name: str) -> str:
    path = project / name
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGE:
        return f"# untracked, not copied (a link, not a file, or over {_LARGE} bytes): {name}\n"
    return git(
        project, "diff", "--no-ext-diff", "--no-textconv", "--binary", "--no-index", "--", os.devnull, name, codes=(0, 1)
    )


def git(project: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """What git prints in ``project``. :class:`StoreError` where it cannot be asked or ends with a code other than ``codes``."""
    # A hook or an alias in the caller's environment must not point us at another repository; the index is not refreshed.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "-C", str(project), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"git cannot be asked: {error}") from error
    if done.returncode not in codes:
        raise StoreError(f"git {arguments[0]}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout.decode("utf-8", "surrogateescape")
