"""Which trained cells were made by other code than the present one. Asks git about commits, once for each; never writes.

A commit counts as other code only where a file differs that can change a number of a trained cell: :data:`MATTERS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from looprepro.files.errors import StoreError
from looprepro.files.places import project_root
from looprepro.store.layout import Layout, attempt_name, read_bytes, read_document
from looprepro.store.provenance import git, source_state

MATTERS = tuple(
    f"looprepro/{name}" for name in ("config", "geometry", "models", "native", "tasks", "training", "randomness.py")
)
"""What trains and measures a cell. The rest plans, starts, collects and draws."""
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_ONE_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_NAME = re.compile(r"diff --git a/(\S*)")


@dataclass(frozen=True)
class Origin:
    """The code that trained a cell."""

    commit: str
    changes: str = ""
    """Uncommitted changes of :data:`MATTERS`, as a diff."""

    def __str__(self) -> str:
        return self.commit[:9] + (" with changes" if self.changes else "")


def made_by_other_code(layout: Layout, ids: Iterable[str], project: Path | None = None) -> dict[str, Origin]:
    """Those of the finished cells ``ids`` whose code differs from that of the checkout ``project`` (this one) as it is now.

    Empty where there is no checkout to compare with. A cell without a commit (trained by an installed package), or without
    its folder, is not named: nothing is known of its code. A commit that this checkout does not have is other code.
    """
    project = project or project_root()
    origins = {cell_id: origin for cell_id in ids if (origin := origin_of(layout, cell_id)) is not None}
    if not origins or not (project / ".git").exists():
        return {}
    same = {origin: _is_present(origin, project) for origin in set(origins.values())}
    return {cell_id: origin for cell_id, origin in origins.items() if not same[origin]}


def origin_of(layout: Layout, cell_id: str) -> Origin | None:
    """The code of the attempt that published the cell's result; None where that is not known."""
    folder = layout.cell(cell_id)
    try:
        result = read_document(folder / "result.json") or {}
        attempt = folder / "attempts" / attempt_name(int(result.get("attempt", 0)))
        provenance = read_document(attempt / "provenance.json") or {}
        commit = provenance.get("commit")
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            return None
        changed = any(name.startswith(MATTERS) for name in provenance.get("dirty_files") or ())
        kept = read_bytes(attempt / "changes.diff") if changed else None
    except (StoreError, ValueError):
        return None  # a broken file is status's to name
    if not changed:
        return Origin(commit)
    return Origin(commit, relevant(kept[0].decode("utf-8", "surrogateescape")) if kept else "unknown")


def relevant(diff: str) -> str:
    """The parts of a diff that change a file of :data:`MATTERS`."""
    parts = [(part, _NAME.match(part)) for part in _ONE_FILE.split(diff)]
    return "".join(part for part, name in parts if name and name[1].startswith(MATTERS))


def _is_present(origin: Origin, project: Path) -> bool:
    try:
        if origin.changes:
            state, diff = source_state(project)
            return state["commit"] == origin.commit and relevant(diff) == origin.changes
        return not git(project, "diff", "--name-only", "--no-ext-diff", origin.commit, "--", *MATTERS)
    except StoreError:
        return False  # a commit that is not here
