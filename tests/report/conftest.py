"""Made-up results that look like Table 1 at scale mini: the shapes are real, the numbers are formulas."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.references import Reference, References
from looprepro.analysis.results import Results, series_table
from looprepro.analysis.table import TablePlan, WantedCell, WantedEvaluation

ROWS = {"diagonal": None, "G=1": 1, "G=2": 2, "G=4": 4, "d/2": 32}
BUDGETS = {"T_max/2": 8, "T_max": 16, "3T_max/2": 24}
SEEDS = range(5)


def accuracy(group: str, row: str, budget: int, seed: int) -> float:
    """Rises with T, is best at G = 2, spreads over seeds."""
    base = {"diagonal": 0.62, "G=1": 0.70, "G=2": 0.84, "G=4": 0.80, "d/2": 0.68}[row] - (0.15 if group == "S5" else 0.0)
    depth = {8: -0.22, 16: 0.0, 24: -0.015}[budget]
    return round(base + depth + 0.02 * ((seed * 7 + len(row) * 3 + budget) % 5 - 2), 6)


def label(row: str) -> str:
    groups = ROWS[row]
    return "diagonal" if groups is None else f"conformal, G = {groups}"


@pytest.fixture(scope="session")
def plan() -> TablePlan:
    wanted = []
    for group in ("A5", "S5"):
        for row in ROWS:
            for seed in SEEDS:
                wanted.append(
                    WantedCell(
                        f"{group}-{row}-s{seed}",
                        seed,
                        {"group": group, "method": row},
                        {"group": group, "method": label(row)},
                        tuple(WantedEvaluation(f"T{T}-e", role, T) for role, T in BUDGETS.items()),
                    )
                )
    return TablePlan(
        "table1",
        "State tracking by group count",
        "Table 1",
        "mini",
        ("method",),
        ("group", "T"),
        "last_token_accuracy",
        3,
        tuple(wanted),
        note="a laptop's protocol, real effects, not the paper's numbers.",
        paper_width=512,
        paper_budgets={"T_max/2": 16, "T_max": 32, "3T_max/2": 48},
    )


@pytest.fixture(scope="session")
def rows(plan: TablePlan) -> list[dict[str, Any]]:
    """One row per number; one diverged seed, one failed, one that never ran."""
    found = []
    for cell in plan.wanted:
        group, row = cell.roles["group"], cell.roles["method"]
        if (group, row, cell.seed) == ("S5", "d/2", 4):
            continue
        status = {("A5", "diagonal", 3): "diverged", ("A5", "G=4", 1): "failed"}.get((group, row, cell.seed), "done")
        for evaluation in cell.evaluations:
            place = {
                "sweep": "table1",
                "scale": "mini",
                "overrides": "",
                "cell": cell.id,
                "axis_group": group,
                "axis_method": row,
                "label_group": group,
                "label_method": cell.labels["method"],
                "seed": cell.seed,
                "T": evaluation.T,
                "role_T": evaluation.role,
                "evaluation": evaluation.id,
                "status": status,
                "device": "cpu",
                "task_group": group,
                "length": 32,
                "curriculum": "doubling",
                "steps": 4500,
                "injection": "diagonal" if row == "diagonal" else "conformal",
                "width": 64,
                "T_max": 16,
            }
            if ROWS[row]:
                place["groups"] = ROWS[row]
            if status == "done":
                place |= {
                    "metric": "last_token_accuracy",
                    "value": accuracy(group, row, evaluation.T, cell.seed),
                    "items": 1024,
                }
            found.append(place)
    return found


@pytest.fixture(scope="session")
def references() -> References:
    """Numbers that the paper states (Table 1)."""

    def stated(group: str, row: str, value: float) -> tuple[dict[str, str], Reference]:
        return {"group": group, "method": row, "T": "T_max"}, Reference(value, "section 5.1")

    return References([stated("A5", "diagonal", 0.692), stated("A5", "G=2", 0.894), stated("S5", "diagonal", 0.531)])


def curve(group: str, row: str, seed: int) -> tuple[list[float], list[float]]:
    """Training loss with a step up whenever the word length doubles, and noise that depends on the seed."""
    final = {"diagonal": 0.9, "G=1": 0.75, "G=2": 0.45, "G=4": 0.5, "d/2": 0.8}[row] + (0.3 if group == "S5" else 0.0)
    top = math.log(120 if group == "S5" else 60)
    steps = [float(step) for step in range(0, 4501, 50)]
    losses = []
    for step in steps:
        stage = min(int(step // 900), 4)
        floor = final * (0.3 + 0.175 * stage)
        height = (top if stage == 0 else 0.35 * top) - floor
        noise = 0.04 * math.sin(step * 0.37 + seed * 1.7 + len(row))
        losses.append(floor + height * math.exp(-(step - 900 * stage) / 200) + noise * (1 + seed / 5))
    return steps, losses


def eigenvalues(row: str, trained: bool) -> tuple[list[float], list[float]]:
    """Of a state of width 64: real for the diagonal, on G circles for a conformal operator."""
    planes, decay = 32, math.sqrt(0.2)
    angles = [10000 ** (-i / planes) * (0.9 if trained else 0.8) for i in range(planes)]
    if row == "diagonal":
        radii = [decay + (0.3 * math.sin(i) if trained else 0.0) for i in range(2 * planes)]
        return radii, [0.0] * (2 * planes)
    count = ROWS[row] or 1
    radii = [decay + (0.45 * (i * count // planes + 1) / count - 0.1 if trained else 0.0) for i in range(planes)]
    x = [r * math.cos(a) for r, a in zip(radii, angles, strict=True)]
    y = [r * math.sin(a) for r, a in zip(radii, angles, strict=True)]
    return x + x, y + [-value for value in y]


def cosines(row: str, inside: bool) -> tuple[list[float], list[float]]:
    """A Gram matrix for T = 16, row by row: Toeplitz for one group and inside one, bent otherwise."""
    bend = 0.0 if inside or row == "G=1" else 0.02
    y = [math.cos(0.15 * (t - s)) * (1 - bend * abs(t - s) / (1 + min(t, s))) for t in range(17) for s in range(17)]
    return [float(i) for i in range(len(y))], y


def by_position(row: str, T: int, seed: int) -> tuple[list[float], list[float]]:
    """Falls with the position, later where T is larger."""
    reach = T * (1.6 if row == "G=2" else 1.2) + seed
    return [float(i) for i in range(1, 33)], [1 / (1 + math.exp((i - reach) / 3)) for i in range(1, 33)]


def defect(row: str, metric: str, T: int, seed: int) -> float:
    """Grows with T for the diagonal; rounding for G = 1 and inside a group."""
    clean = row == "G=1" or (metric == "defect_blockwise" and row != "diagonal")
    return (1e-16 if clean else 0.004 * T) * (1 + 0.1 * seed)


@pytest.fixture(scope="session")
def everything(plan: TablePlan, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All of it collected; no trained spectrum for G = 4, as after a run that only started. Not to be written into."""
    series = {}
    for cell in plan.wanted:
        row = cell.roles["method"]
        series[cell.id] = {"loss": curve(cell.roles["group"], row, cell.seed), "spectrum@0": eigenvalues(row, False)}
        if row != "G=4":
            series[cell.id]["spectrum"] = eigenvalues(row, True)
        series[cell.id] |= {"gram@sphere": cosines(row, False), "gram@group": cosines(row, True)}
        for T in BUDGETS.values():
            series[cell.id][f"position_accuracy@T={T}"] = by_position(row, T, cell.seed)
    geometry = [
        row | {"metric": metric, "value": defect(row["axis_method"], metric, row["T"], row["seed"]), "items": 256}
        for row in rows
        if row["status"] == "done"
        for metric in ("defect_sphere", "defect_blockwise")
    ]
    return Results("mini", tmp_path_factory.mktemp("everything"), [*rows, *geometry], series_table(series))


@pytest.fixture
def results(everything: Results, tmp_path: Path) -> Results:
    """The same in a folder of its own."""
    return dataclasses.replace(everything, folder=tmp_path / "mini")
