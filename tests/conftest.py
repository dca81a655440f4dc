"""Fixtures of every room."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


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
