"""What was asked for: which cells of which sweep, in which place of its table. Collect reads it, nothing else needs it."""

from __future__ import annotations

import os
import re
import time
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
    """Keep {"sweep", "scale", "overrides", "cells"} and the time. The name follows from the content alone: asked again, it is
    the latest, and no second file."""
    missing = [key for key in _KEYS if key not in request]
    if missing:
        raise ConfigError(f"a request needs {', '.join(missing)}")
    content = {**request, "schema": SCHEMA}
    identity = sha256_bytes(_line(content))[:12]
    sweep = re.sub(r"[^\w.-]+", "-", Path(str(request["sweep"])).stem).strip("-.") or "sweep"
    path = layout.requests(str(request["scale"])) / f"{sweep[:80]}-{identity}.json"
    layout.refuse_links(path)
    write_bytes(path, _line(content | {"asked": time.time()}))
    return path


def read_requests(layout: Layout, scale: str) -> Iterator[tuple[str, dict[str, Any] | StoreError]]:
    """(path, request) for every request of ``scale``, the latest last; before them the error in place of each broken one."""
    folder = layout.requests(scale)
    try:
        layout.refuse_links(folder)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return
    except StoreError as error:
        yield str(folder), error
        return
    found: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        path = f"{folder}/{name}"
        try:
            document = read_document(path)
            if document is not None and not _is_request(document):
                raise StoreError(f"{path} is not a request", "Move the file away")
        except StoreError as error:
            yield path, error
            continue
        if document is not None:
            found.append((path, document))
    # Its own time, not the file's, which a copy of the runs folder may not keep.
    yield from sorted(found, key=lambda item: item[1].get("asked", 0.0))


def _is_request(document: Mapping[str, Any]) -> bool:
    return all(key in document for key in _KEYS) and isinstance(document.get("asked", 0.0), int | float)


def _line(document: Mapping[str, Any]) -> bytes:
    return (canonical_json(document) + "\n").encode("utf-8")
