"""Publish a result once, and trust one only by the nonce of the attempt that wrote it.

A scheduler may run two copies of a cell, and reuses job ids; a nonce is random per attempt.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from looprepro.files.atomic import create_exclusive, explained
from looprepro.files.errors import StoreError
from looprepro.files.json_files import canonical_json, pretty_json
from looprepro.store.layout import WEIGHTS_PATH, attempt_name, attempt_numbers, read_document

Document = dict[str, Any]
_FINAL = ("done", "diverged")


def nonce_of(cell: Path, number: int) -> str | None:
    """The nonce of attempt ``number`` of a cell folder; None where it has none that can be read."""
    try:
        owner = read_document(cell / "attempts" / attempt_name(number) / "owner.json")
    except StoreError:
        return None
    nonce = owner.get("nonce") if owner else None
    return nonce if isinstance(nonce, str) else None


def distrust(document: Mapping[str, Any], nonce: Callable[[int], str | None]) -> str:
    """Why a result or evaluation cannot be trusted; empty if it can. ``nonce`` gives the nonce of an attempt number."""
    number, own = document.get("attempt"), document.get("nonce")
    if not isinstance(number, int) or not isinstance(own, str):
        return "it names no attempt"
    if nonce(number) != own:
        return f"its nonce is not that of attempt {number}"
    if "metrics" in document or "evaluation" in document:
        return "" if isinstance(document.get("metrics"), dict) else "it has no metrics"
    if document.get("status") not in _FINAL or not isinstance(document.get("step"), int):
        return "it has no final status and step"
    return ""


def read_result(cell: Path) -> Document | None:
    """The trusted result of a cell folder; None where there is none; :class:`StoreError` where it cannot be trusted."""
    return _read_trusted(cell, cell / "result.json")


def weights_folder(cell: str | Path, result: Mapping[str, Any] | None) -> Path | None:
    """The checkpoint folder that the result of a cell folder names; where it is gone, that of the latest attempt that has one
    of the same step (the cell was trained again). None where there is none; a name that leads elsewhere is none.

    In strings, as it is asked for every cell whenever something looks at the store.
    """
    weights = (result or {}).get("weights")
    if not isinstance(weights, str) or not WEIGHTS_PATH.fullmatch(weights):
        return None
    if _is_real(path := f"{cell}/{weights}"):
        return Path(path)
    attempts, name = f"{cell}/attempts", os.path.basename(weights)
    others = (f"{attempts}/{attempt_name(number)}/{name}" for number in reversed(attempt_numbers(attempts)))
    return next((Path(path) for path in others if _is_real(path)), None)


def _is_real(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not os.path.islink(os.path.dirname(path))


def publish(cell: Path, path: Path, document: Document, *, pretty: bool) -> bool:
    """Create ``path`` with ``document``; False where a trusted one is there already (the first writer wins).

    A file that cannot be trusted is kept beside as ``.<name>.<hex>.untrusted`` and replaced.
    """
    try:
        text = pretty_json(document) if pretty else canonical_json(document) + "\n"
    except ValueError as error:
        raise StoreError(f"{path} would hold a value that is not finite or not JSON: {error}") from error
    data = text.encode("utf-8")
    if create_exclusive(path, data):
        return True
    if _trusted(cell, path):
        return False
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.untrusted")
    with explained(path, "set aside"):
        os.rename(path, aside)
        if _trusted(cell, aside):  # another writer replaced the broken file between our look and our rename
            os.link(aside, path)
            return False
    return create_exclusive(path, data)


def _read_trusted(cell: Path, path: Path) -> Document | None:
    document = read_document(path)
    if document is None:
        return None
    reason = distrust(document, lambda number: nonce_of(cell, number))
    if reason:
        raise StoreError(f"{path} cannot be trusted: {reason}", "Run the same command again: it is counted missing")
    return document


def _trusted(cell: Path, path: Path) -> bool:
    try:
        return _read_trusted(cell, path) is not None
    except StoreError:
        return False
