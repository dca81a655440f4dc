"""Which documents are held out: a function of the text alone, so neither order, shard size nor source moves a document."""

from __future__ import annotations

import hashlib


def is_validation(text: str, share: float) -> bool:
    """Whether ``text`` belongs to the validation split: its SHA-256 falls into the lowest ``share`` of all values.

    Equal texts get equal answers, so no document is in both splits.
    """
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64
