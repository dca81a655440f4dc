"""Which collected rows form a sample: one number per distinct seed, runs grouped by method. For the figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from looprepro.analysis.schema import Row

Wanted = Mapping[str, Collection[str]]
"""Cell id -> ids of the evaluations that a sweep wants of it today."""


@dataclass(frozen=True, order=True)
class Method:
    """A row of a sweep's axis ``method``; sorts as the tables do: diagonal first, then by family and G."""

    rank: int
    family: str
    """``diagonal``, ``grouped diagonal``, ``conformal``, ``conformal cayley``, ... or the name of a user's own operator."""
    groups: int
    """G; 0 where a method has none."""
    is_half: bool
    """G = d/2, which is another number at every width."""
    row: str
    """Its role on the axis: two rows may have one family and one G (two settings of an operator). "" without that axis."""
    label: str
    """As the sweep prints it: ``conformal, G = 16 (d/2)``."""


def method_of(row: Row) -> Method:
    """The method of a row, from its configuration columns and its place in its sweep."""
    injection, chart, groups = row["injection"], row.get("chart"), row.get("groups", 0)
    family = injection.rsplit(":", 1)[-1].replace("_", " ")
    if chart and chart != "pairwise":
        family = f"{family} {chart}"
    rank = {"diagonal": 0, "grouped_diagonal": 1, "conformal": 2}.get(injection, 3)
    is_half = 2 * groups == row["width"]
    label = row.get("label_method") or (f"{family}, G = {groups}" if groups else family)
    if is_half and "d/2" not in label:
        label = f"{label} (d/2)"
    return Method(rank, family, groups, is_half, row.get("axis_method", ""), label)


def panel_of(row: Row) -> str:
    """What else than its method tells a row's place in its sweep: ``A5``; of language models a size, a gradient."""
    axes = sorted(name.removeprefix("axis_") for name in row if name.startswith("axis_") and name != "axis_method")
    return ", ".join(str(row.get(f"label_{axis}") or row[f"axis_{axis}"]) for axis in axes) or row.get("task_group", "")


def panel_order(panel: str) -> tuple[int, str]:
    """Sort key of panels: 60M before 140M, width 96 before width 128."""
    return len(panel), panel


def first_panel(rows: Iterable[Row]) -> str:
    """The first task or size, for a picture that has room for one; "" without rows."""
    return min((panel_of(row) for row in rows), key=panel_order, default="")


def of_sweep(rows: Iterable[Row], sweep: str, wanted: Wanted | None = None) -> list[Row]:
    """The rows of one sweep without overrides; ``wanted`` restricts them to its cells and evaluations of today.

    What somebody measured besides, at budgets that the sweep does not have, stays.
    """
    found = [row for row in rows if row["sweep"] == sweep and not row.get("overrides")]
    if wanted is None:
        return found
    found = [row for row in found if row["cell"] in wanted]
    planned = [row.get("evaluation") in wanted[row["cell"]] for row in found]
    budgets = {(row["cell"], row.get("T")) for row, is_planned in zip(found, planned, strict=True) if is_planned}
    return [
        row
        for row, is_planned in zip(found, planned, strict=True)
        if is_planned or (not row.get("role_T") and (row["cell"], row.get("T")) not in budgets)
    ]


def distinct(rows: Iterable[Row]) -> list[Row]:
    """One row per seed: a second cell with the same seed, or with the same loss curve bit for bit, does not count again."""
    seen: set[tuple[str, object]] = set()
    chosen = []
    for row in sorted(rows, key=lambda row: (row["seed"], row["cell"])):
        marks = {("seed", row["seed"])} | ({("curve", row["loss_digest"])} if "loss_digest" in row else set())
        if not marks & seen:
            chosen.append(row)
        seen |= marks
    return chosen
