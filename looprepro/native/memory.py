"""Ask the C library to keep freed memory in the process, so that every step does not get its pages anew."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""


def keep_freed_memory() -> bool:
    """Memory up to 32 MB a piece comes from the heap, which gives nothing back below 1 GB. False where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 32 << 20)) and bool(mallopt(_TRIM_THRESHOLD, 1 << 30))
