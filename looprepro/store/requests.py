"""What was asked for: which cells of which sweep, in which place of its table. Collect reads it, nothing else needs it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from looprepro.files.atomic import write_bytes
from looprepro.files.checksum import sha256_bytes
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import canonical_json
from looprepro.store.layout import SCHEMA, Layout, read_document

_KEYS = ("sweep", "scale", "overrides", "cells")


def record_request(layout: Layout, request: Mapping[str, Any]) -> Path:
    """Keep {"sweep", "scale", "overrides", "cells"}. The name follows from the content: asking again makes it the latest."""
    missing = [key for key in _KEYS if key not in request]
    if missing:
        raise ConfigError(f"a request needs {', '.join(missing)}")
    data = (canonical_json({**request, "schema": SCHEMA}) + "\n").encode("utf-8")
    sweep = re.sub(r"[^\w.-]+", "-", Path(str(request["sweep"])).stem).strip("-.") or "sweep"
    path = layout.requests(str(request["scale"])) / f"{sweep[:80]}-{sha256_bytes(data)[:12]}.json"
    layout.refuse_links(path)
    write_bytes(path, data)
    return path


def read_requests(layout: Layout, scale: str) -> Iterator[tuple[str, dict[str, Any] | StoreError]]:
    """(path, request) for every request of ``scale``, the latest last; the error in place of one that is broken."""
    folder = layout.requests(scale)
    try:
        layout.refuse_links(folder)
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.name.endswith(".json") and not entry.name.startswith(".")]
            names = [file.name for file in sorted(files, key=_written)]
    except FileNotFoundError:
        return
    except StoreError as error:
        yield str(folder), error
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            document = read_document(path)
            if document is not None and any(key not in document for key in _KEYS):
                raise StoreError(f"{path} is not a request", "Move the file away")
        except StoreError as error:
            yield path, error
            continue
        if document is not None:
            yield path, document


def _written(file: os.DirEntry[str]) -> tuple[int, str]:
    """When it was written; 0 if it is gone since it was listed."""
    try:
        return file.stat(follow_symlinks=False).st_mtime_ns, file.name
    except FileNotFoundError:
        return 0, file.name
