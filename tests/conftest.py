"""Fixtures of every room."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

TINY = """
name: tiny
title: Tiny
place: Table 0
paper: rotate_the_loop
kind: table
base:
  task: {kind: group_words, group: S3, length: 4}
  model:
    width: 8
    heads: 2
    prelude_layers: 1
    core_layers: 1
    coda_layers: 1
    recurrence: {maximum: 3, mean: 2}
  training: {lr: 1.0e-2, steps: %STEPS%, batch: 4, warmup: 4, average_last: %AVERAGE%}
axes:
  method:
    - {role: diagonal, set: {model.injection.method: diagonal}}
    - {role: G=2, set: {model.injection.method: conformal, model.injection.groups: 2}}
evaluations: {budgets: [T_max, 2T_max], items: 8}
layout: {rows: [method], columns: [T], metric: last_token_accuracy}
scales:
  smoke:
    note: nothing but speed.
    seeds: %SEEDS%
    execution: {threads: 1, device: cpu, %EXECUTION%}
"""


@pytest.fixture(scope="session")
def tiny_sweep() -> Callable[..., str]:
    """``tiny_sweep(steps=24, seeds="0-2")``: a sweep file of two methods that runs in two seconds."""

    def text(steps: int = 8, average_last: float = 0.0, seeds: str = "0-1", execution: str = "log_every: 2") -> str:
        found = TINY
        for name, value in {"STEPS": steps, "AVERAGE": average_last, "SEEDS": seeds, "EXECUTION": execution}.items():
            found = found.replace(f"%{name}%", str(value))
        return found

    return text


@pytest.fixture
def loopback_hub() -> Iterator[Callable[..., Any]]:
    """``loopback_hub({"owner/name": {"file": b"..."}})``: a running hub (tests/loopback_hub.py), stopped after the test."""
    spec = importlib.util.spec_from_file_location("loopback_hub", Path(__file__).with_name("loopback_hub.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with ExitStack() as stack:
        yield lambda repositories: stack.enter_context(module.LoopbackHub(repositories))
