"""docs/caveats.md names tests: each of them exists, and none of the 25 reports is without an answer."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TEXT = (PROJECT / "docs" / "caveats.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    existing = {
        name for path in PROJECT.glob("tests/**/test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 50
    assert sorted(named - existing) == []


def test_each_of_the_25_reports_has_an_answer() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 26))
    assert all(len(answer) > 20 for _, _, answer in rows)
