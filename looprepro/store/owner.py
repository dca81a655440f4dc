"""Who holds a cell, and whether that process still lives.

On the same machine the process table answers. About another machine only its heartbeat is known, and silence is not
death (a suspended job, a slow network disk), so it counts as dead only after a generous limit; the fencing number of
the attempt keeps even a wrong verdict harmless.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from looprepro.store.layout import SCHEMA

FOREIGN_SILENCE = 900.0
"""Seconds without heartbeat (one is due every 10) after which an owner on another machine counts as dead."""
REBOOT_SILENCE = 60.0
"""The same for a machine of our own host name that has booted since: two machines may share a name."""
_SLURM_KEYS = ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "RESTART_COUNT", "NODEID", "JOB_PARTITION")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that holds one attempt."""

    nonce: str
    """Random per attempt: results are trusted by it, never by a job id or process id."""
    host: str
    boot: str
    """Identifies one boot of the machine; empty where unknown."""
    namespace: str
    """Process-id namespace (containers of one machine have several); empty where there is none."""
    pid: int
    process_start: str
    slurm: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As stored in owner.json."""
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Owner | None:
        """The owner in an owner.json; None where fields are missing or of the wrong type."""
        try:
            return Owner(
                nonce=str(document["nonce"]),
                host=str(document["host"]),
                boot=str(document["boot"]),
                namespace=str(document["namespace"]),
                pid=int(document["pid"]),
                process_start=str(document["process_start"]),
                slurm={str(key): str(value) for key, value in dict(document.get("slurm") or {}).items()},
            )
        except (KeyError, TypeError, ValueError):
            return None

    def is_earlier_start_of(self, other: Owner) -> bool:
        """``other`` is the same SLURM job (same array index) after a requeue: it need not wait for this copy's silence."""
        key = ("JOB_ID", "ARRAY_TASK_ID")
        same = bool(self.slurm.get("JOB_ID")) and all(self.slurm.get(k) == other.slurm.get(k) for k in key)
        return same and _count(self.slurm) < _count(other.slurm)


def current_owner() -> Owner:
    """This process, with a fresh nonce."""
    slurm = {key: os.environ[f"SLURM_{key}"] for key in _SLURM_KEYS if f"SLURM_{key}" in os.environ}
    if slurm and "LOOPREPRO_SUBMISSION" in os.environ:
        slurm["SUBMISSION"] = os.environ["LOOPREPRO_SUBMISSION"]  # job ids are given out again, this name is not
    return Owner(
        nonce=secrets.token_hex(16),
        host=socket.gethostname(),
        boot=boot_identity(),
        namespace=_namespace(),
        pid=os.getpid(),
        process_start=process_started(os.getpid()) or "",
        slurm=slurm,
    )


def is_dead(owner: Owner | None, silence: float) -> bool:
    """Whether the process behind an attempt is gone. ``silence``: seconds since its last heartbeat.

    ``owner`` None stands for an owner.json that cannot be read (a power cut): judged like another machine.
    """
    if owner is None:
        return silence > FOREIGN_SILENCE
    here = owner.host == socket.gethostname()
    boot = boot_identity()
    if here and owner.boot == boot and owner.namespace == _namespace():
        started = process_started(owner.pid)
        return started is None or (bool(owner.process_start) and bool(started) and started != owner.process_start)
    if here and owner.boot and boot and owner.boot != boot:
        return silence > REBOOT_SILENCE
    return silence > FOREIGN_SILENCE


def process_started(pid: int) -> str | None:
    """When process ``pid`` started, as the system writes it; None: no such process (or a zombie); "": it lives, start unknown.

    Together with the pid it names one process for a whole boot: a reused pid has another start.
    """
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return "" if _signalable(pid) else None  # /proc may hide other users' processes
        except PermissionError:
            return ""
        fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and parentheses
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    ).stdout.split(maxsplit=1)
    return None if len(answer) < 2 or answer[0].startswith("Z") else answer[1].strip()


def _signalable(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@cache
def boot_identity() -> str:
    """One boot of this machine; empty where the system tells nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        if sys.platform != "darwin":
            return ""
    # boottime follows clock corrections; the session UUID doesn't.
    command = ["sysctl", "-n", "kern.bootsessionuuid"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _count(slurm: Mapping[str, str]) -> int:
    text = slurm.get("RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0
