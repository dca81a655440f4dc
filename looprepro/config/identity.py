"""Names that follow from content: a readable slug and a short hash of the whole resolved configuration."""

from __future__ import annotations

from looprepro.config.cell import Cell, Evaluation, GroupWordsTask, LoopedTransformer, StateTrackingTask
from looprepro.files.checksum import sha256_bytes
from looprepro.files.json_files import canonical_json

HASH_LENGTH = 12
"""Hex digits: 48 bits, so 10,000 cells collide with probability 2e-7; a collision is detected, never ignored."""

MEASURES = {"budget": 2, "reasoner": 2}
"""Kind of evaluation -> version of what it measures (1 where it is not named): part of an evaluation's identity. Raise it
when a metric is added or changes its meaning: every cell is then measured again from its weights, and none trained again.
Group words: 2 since the geometry of the operator is measured. Reasoners: 2 since ``converged`` is told from ``halted``."""


def cell_id(cell: Cell) -> str:
    """``<slug>-<hash>``: equal cells, and only they, have equal ids."""
    return f"{slug(cell)}-{digest(cell.model_dump(mode='json'))}"


def slug(cell: Cell) -> str:
    """What a person needs to recognise a cell in a listing; not unique."""
    task = cell.task.group if isinstance(cell.task, GroupWordsTask | StateTrackingTask) else cell.task.kind
    parts = [task, *(_operator(cell.model) if isinstance(cell.model, LoopedTransformer) else [cell.model.kind])]
    parts += [f"d{cell.model.width}", f"s{cell.seed}"]
    return "-".join(parts).lower().replace("_", "-")


def _operator(model: LoopedTransformer) -> list[str]:
    injection = model.injection
    parts = [injection.method.rsplit(":", 1)[-1]]
    if injection.chart and injection.chart != "pairwise":
        parts.append(injection.chart)
    if injection.groups is not None:
        parts.append(f"g{injection.groups}")
    return parts


def evaluation_id(evaluation: Evaluation) -> str:
    """``T<budget>-<hash>``; the hash is over the settings and the version of what is measured."""
    settings = evaluation.model_dump(mode="json")
    return f"T{evaluation.T}-{digest(settings | {'measures': MEASURES.get(settings.get('kind', 'budget'), 1)})}"


def digest(value: object) -> str:
    """The first :data:`HASH_LENGTH` hex digits of the SHA-256 of the canonical JSON of ``value``."""
    return sha256_bytes(canonical_json(value).encode())[:HASH_LENGTH]
