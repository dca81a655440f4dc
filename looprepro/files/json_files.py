"""JSON in one canonical form, and reading it without trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from looprepro.files.atomic import write_text
from looprepro.files.errors import StoreError


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, ASCII, no NaN: equal values give equal text. What identities are hashed from."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def pretty_json(value: Any) -> str:
    """Sorted keys, two spaces, final newline: what people read."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace ``path`` by ``value`` as pretty JSON, atomically."""
    write_text(path, pretty_json(value), durable=durable)


def read_json(path: Path) -> Any:
    """The value in ``path``; :class:`StoreError` naming the path where it is missing or not JSON."""
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise StoreError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read as JSON: {error}", "Move the file away and run the command again") from error
