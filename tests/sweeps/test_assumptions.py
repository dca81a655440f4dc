"""docs/assumptions.md: every row names a place that exists and holds the value that the row gives."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from looprepro.config import cell as configuration
from looprepro.planning import Expansion, expand, load_sweep

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "assumptions.md"
NOT_A_VALUE = ("code",)
"""What stands in the column of values where the choice is a piece of code, not a number."""
FILLED_IN = ("Injection.omega_init", "Injection.chart")
"""Fields that are None until a conformal cell fills them in."""


def rows() -> list[tuple[str, ...]]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| assumption", "| ---")):
            found.append(tuple(part.strip() for part in line.strip("|").split(" | ")))
    return found


@cache
def expansion(sweep: str, scale: str, only: tuple[str, ...] = ()) -> Expansion:
    return expand(load_sweep(sweep), scale, only=only)


def shown(value: Any) -> str:
    """As JSON, strings without quotes: how the page writes values."""
    if isinstance(value, str):
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def along(start: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        start = getattr(start, name)
    return start


def value_at(where: str) -> tuple[bool, Any]:
    """(Whether the place holds a value that can be compared, the value). Raises where the place does not exist."""
    if match := re.fullmatch(r"(\w+)(?:\[([^]]+)\])?/(\w+) ([\w.]+)", where):
        sweep, roles, scale, key = match.groups()
        grid = expansion(sweep, scale, tuple(roles.split(", ")) if roles else ())
        section, _, rest = key.partition(".")
        match section:
            case "evaluations":
                return True, along(grid.cells[0].evaluations[0].evaluation, rest)
            case "execution":
                return True, along(grid.execution, rest)
            case "layout":
                return True, along(grid.layout, rest)
        values = {shown(along(cell.cell, key)) for cell in grid.cells}
        assert len(values) == 1, f"{where} is not one value: {values}"
        return True, values.pop()
    if match := re.fullmatch(r"config (\w+)\.(\w+)", where):
        field = getattr(configuration, match[1]).model_fields[match[2]]
        if f"{match[1]}.{match[2]}" in FILLED_IN:
            return True, getattr(configuration.Injection(method="conformal", groups=1), match[2])
        return True, field.default
    if match := re.fullmatch(r"code ([\w/.]+): (\w+)", where):
        tree = ast.parse((ROOT / match[1]).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == match[2]:
                return False, None
            if isinstance(node, ast.Assign) and any(getattr(t, "id", None) == match[2] for t in node.targets):
                return True, ast.literal_eval(node.value)
        raise AssertionError(f"{match[1]} defines no {match[2]}")
    raise AssertionError(f"'{where}' is not one of the three forms that the page explains")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_assumption_is_set_where_the_page_says(row: tuple[str, ...]) -> None:
    assert len(row) == 4, "a row has an assumption, a value, a place and a reason"
    _, value, where, reason = row
    assert re.fullmatch(r"`[^`]+`", value)
    assert re.fullmatch(r"`[^`]+`", where)
    assert len(reason) > 3
    compares, found = value_at(where.strip("`"))
    said = value.strip("`")
    if said in NOT_A_VALUE:
        return
    assert compares, f"{where} holds no value to compare with {said}"
    assert said == shown(found)


def test_the_page_covers_what_the_paper_leaves_open_about_group_words() -> None:
    """Each choice of the protocol has a row: by the key that sets it."""
    places = " ".join(row[2] for row in rows())
    for key in (
        "task.length",
        "task.start_token",
        "task.alphabet",
        "model.recurrence.mean",
        "model.recurrence.scheme",
        "model.recurrence.backprop_depth",
        "model.prelude_layers",
        "model.heads",
        "model.mlp_width",
        "model.value_embeddings",
        "training.batch",
        "training.steps",
        "training.schedule",
        "training.warmup",
        "training.clip",
        "evaluations.items",
    ):
        assert f"table1/paper {key}`" in places
    assert {"`config Injection.decay_value`", "`config Injection.omega_init`"} <= {row[2] for row in rows()}


def test_the_page_says_that_tables_6_and_7_are_lost() -> None:
    assert re.search(r"Tables 6 and 7 exist.*nothing of them\s+survives", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_a_wrong_place_would_be_noticed() -> None:
    for where in ("table1/paper training.no_such_key", "config Injection.no_such_field", "code looprepro/randomness.py: NONE"):
        with pytest.raises((AssertionError, AttributeError, KeyError)):
            value_at(where)
