"""Where prepared data lies: ``data/`` in the working folder, or what ``LOOPREPRO_DATA`` names."""

from __future__ import annotations

import os
from pathlib import Path


def data_root() -> Path:
    """The folder of all prepared data."""
    return Path(os.environ.get("LOOPREPRO_DATA") or "data")


def data_folder(name: str) -> Path:
    """The folder of the data called ``name``; a name with a slash is a path and stays what it is."""
    return Path(name) if "/" in name else data_root() / name
