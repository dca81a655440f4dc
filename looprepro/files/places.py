"""Where things lie outside the runs folder: prepared data, and the code itself."""

from __future__ import annotations

import os
from pathlib import Path

import looprepro


def project_root() -> Path:
    """The folder that holds the package: a checkout, the code that a job was submitted with, or site-packages."""
    return Path(looprepro.__file__).resolve().parent.parent


def checkout() -> Path | None:
    """:func:`project_root` where the project's other files lie beside the package; None in an installation."""
    root = project_root()
    return root if (root / "pyproject.toml").is_file() else None


def data_root() -> Path:
    """The folder of all prepared data: ``data/`` in the working folder, or what ``LOOPREPRO_DATA`` names."""
    return Path(os.environ.get("LOOPREPRO_DATA") or "data")


def data_folder(name: str) -> Path:
    """The folder of the data called ``name``; a name with a slash is a path and stays what it is."""
    return Path(name) if "/" in name else data_root() / name
