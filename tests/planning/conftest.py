"""A small sweep on disk whose every number can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from looprepro.planning import Sweep, load_sweep

TEXT = """\
name: small
title: A small sweep
place: Table 0
paper: rotate_the_loop
kind: table
base:
  task: {group: A5, length: 8}
  model:
    width: 16
    heads: 2
    recurrence: {maximum: 4, mean: 3T_max/4}
  training: {steps: 100, batch: 4}
axes:
  group:
    - {role: A5, set: {task.group: A5}}
    - {role: S5, set: {task.group: S5}}
  method:
    - {role: diagonal, set: {model.injection.method: diagonal}}
    - {role: G=2, set: {model.injection.method: conformal, model.injection.groups: 2}}
    - role: d/2
      label: "conformal, G = {model.injection.groups}"
      set: {model.injection.method: conformal, model.injection.groups: d/2}
evaluations: {budgets: [T_max/2, T_max, 3T_max/2], items: 64}
layout: {rows: [method], columns: [group, T], metric: last_token_accuracy}
scales:
  smoke: {note: shows nothing, seeds: 0-1}
  mini:
    note: shows a little
    seeds: 0,3,5
    set: {model: {width: 32, recurrence: {maximum: 8}}}
    axes: {method: [diagonal, d/2]}
    evaluations: {items: 128}
    execution: {device: cpu}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the small sweep with pieces of its text replaced; each piece must occur exactly once."""

    def write(*replacements: tuple[str, str], name: str = "small") -> Path:
        text = TEXT.replace("name: small", f"name: {name}")
        for old, new in replacements:
            assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def small(write: Write) -> Sweep:
    return load_sweep(write())
