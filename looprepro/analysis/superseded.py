"""Measurements that a later version of themselves has replaced: same settings, another version of what is measured
(:data:`looprepro.config.identity.MEASURES`). Both in one table would count a seed twice."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from looprepro.config.evaluations import parse_evaluation
from looprepro.config.identity import evaluation_id


def superseded(settings: Mapping[str, Any], there: Collection[str]) -> dict[str, str]:
    """Evaluation id -> the id that its settings have today, where that is another one and is ``there`` as well.

    ``settings``: id -> settings as JSON. An evaluation that nobody has measured anew stays what it is.
    """
    found = {}
    for id, document in settings.items():
        today = _today(id, document)
        if today != id and today in there:
            found[id] = today
    return found


def superseded_numbers(settings: Mapping[str, Any], numbers: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of ``numbers``, pairs of cell and evaluation, that the same cell has of the evaluation of today, too."""
    have = set(numbers)
    today = superseded(settings, {evaluation for _, evaluation in have})
    return {(cell, old) for cell, old in have if old in today and (cell, today[old]) in have}


def _today(id: str, document: Any) -> str:
    return _id_today(json.dumps(document, sort_keys=True)) or id


@lru_cache(maxsize=4096)
def _id_today(settings: str) -> str | None:
    """None for settings that this version no longer knows: nothing can have replaced them."""
    try:
        return evaluation_id(parse_evaluation(json.loads(settings)))
    except ValidationError:
        return None
