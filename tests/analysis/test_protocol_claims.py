"""The claims about costs, prefixes and the curriculum: worlds that support, contradict, leave undecided, and are empty."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.claim_samples import Samples
from looprepro.analysis.claims import Finding, judge
from looprepro.analysis.results import Results, series_table
from looprepro.planning import Expansion, PlannedCell, expand, load_sweep
from looprepro.planning.claims import load_claims
from looprepro.planning.expansion import Placement, PlannedEvaluation

PAPER = {claim.id: claim for claim in load_claims("rotate_the_loop")}
Place = tuple[PlannedCell, Placement, PlannedEvaluation]


@cache
def expansion(sweep: str, scale: str) -> Expansion:
    return expand(load_sweep(sweep), scale)


def places(sweep: str, scale: str) -> Iterator[Place]:
    for planned in expansion(sweep, scale).cells:
        for place in planned.placements:
            for e in place.evaluations:
                yield planned, place, e


def noise(*about: object) -> float:
    """Deterministic, in [-1, 1]."""
    return int(hashlib.sha256(repr(about).encode()).hexdigest()[:8], 16) / 2**31 - 1


def rows(sweep: str, scale: str, columns: Callable[[Place], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "sweep": sweep,
            "scale": scale,
            "cell": place[0].id,
            "seed": place[0].cell.seed,
            "T": place[2].evaluation.T,
            "role_T": place[2].role,
            "evaluation": place[2].id,
            "metric": "last_token_accuracy",
            "value": 0.5,
            "status": "done",
            **{f"axis_{axis}": role for axis, role in place[1].axes.items()},
            **columns(place),
        }
        for place in places(sweep, scale)
    ]


def judged(id: str, scale: str, found: list[dict[str, Any]], series: dict[str, Any] | None = None) -> Finding:
    return judge([PAPER[id]], Results(scale, Path("unused"), found, series_table(series or {})))[0]


H100 = "NVIDIA H100 80GB HBM3"


def hours(mean: float, spread: float, device: str = H100) -> Callable[[Place], dict[str, Any]]:
    return lambda place: {"device": device, "device_hours": mean + spread * noise(place[0].id)}


def test_c23_a_run_of_two_and_a_half_h100_hours() -> None:
    def verdict(*about: Any) -> str:
        return judged("C23", "paper", rows("table1", "paper", hours(*about))).verdict

    assert verdict(2.5, 0.1) == "supported"
    assert verdict(4.0, 0.1) == "contradicted"
    assert verdict(3.1, 0.5) == "undecided"
    assert verdict(2.5, 0.1, "NVIDIA A100") == "no data"
    mini = judged("C23", "mini", rows("table1", "mini", hours(2.5, 0.1)))
    assert (mini.verdict, mini.reason) == ("no data", "this is about scale paper only")


def test_c24_the_geometry_takes_less_than_a_hundredth_of_a_run() -> None:
    def verdict(share: float, spread: float) -> str:
        def columns(place: Place) -> dict[str, Any]:
            return {"device_hours": 0.1, "geometry_hours": 0.1 * (share + spread * noise(place[0].id))}

        return judged("C24", "mini", rows("table1", "mini", columns)).verdict

    assert verdict(0.001, 0.0005) == "supported"
    assert verdict(0.05, 0.0005) == "contradicted"
    assert verdict(0.01, 0.005) == "undecided"
    assert judged("C24", "mini", rows("table1", "mini", hours(0.1, 0.01))).verdict == "no data"


def prefixes(*late: float, early: float = 0.98, spread: float = 0.02) -> Finding:
    """Eight positions: the first quarter at ``early``, the last at ``late`` for each budget."""
    found, series = [], {}
    for place in places("table1", "mini"):
        planned, where, e = place
        if where.axes["group"] != "A5" or where.axes["method"] not in ("diagonal", "G=2"):
            continue
        end = late[("T_max/2", "T_max", "3T_max/2").index(e.role)] + spread * noise(planned.id, e.role)
        y = [early, early, 0.9, 0.8, 0.7, 0.6, end + 0.05, end - 0.05]
        series.setdefault(planned.id, {})[f"position_accuracy@T={e.evaluation.T}"] = ([float(i) for i in range(1, 9)], y)
        found.append(place)
    kept = {(place[0].id, place[2].role) for place in found}
    shown = [row for row in rows("table1", "mini", lambda place: {}) if (row["cell"], row["role_T"]) in kept]
    return judged("C30", "mini", shown, series)


def test_c30_early_prefixes_first_and_late_ones_with_more_steps() -> None:
    supported = prefixes(0.2, 0.6, 0.7)
    assert supported.verdict == "supported"
    assert supported.parts[2].effect == pytest.approx(0.4, abs=0.02)
    assert prefixes(0.6, 0.2, 0.2).verdict == "contradicted"
    assert prefixes(0.6, 0.6, 0.6).verdict == "undecided"
    assert judged("C30", "mini", rows("table1", "mini", lambda place: {})).verdict == "no data"


def test_a_sample_can_be_a_part_of_a_series() -> None:
    series = {
        place[0].id: {f"position_accuracy@T={place[2].evaluation.T}": ([1.0, 2, 3, 4, 5, 6, 7, 8], [0.98] * 2 + [0.5] * 6)}
        for place in places("table1", "mini")
        if place[2].role == "T_max"
    }
    samples = Samples(Results("mini", Path("unused"), rows("table1", "mini", lambda place: {}), series_table(series)))
    selector = {"sweep": "table1", "group": "A5", "T": "T_max", "method": "G=2", "series": "position_accuracy"}
    assert set(samples.select(selector | {"span": "first quarter"}).values.values()) == {0.98}
    assert set(samples.select(selector | {"span": "last quarter"}).values.values()) == {0.5}


def test_c31_the_curriculum_is_needed() -> None:
    def verdict(with_it: float, without: float, spread: float = 0.01) -> str:
        def columns(place: Place) -> dict[str, Any]:
            level = with_it if place[1].axes["curriculum"] == "doubling" else without
            return {"value": level + spread * noise(place[0].id, place[2].role)}

        return judged("C31", "mini", rows("ablation_curriculum", "mini", columns)).verdict

    assert verdict(0.8, 0.2) == "supported"
    assert verdict(0.2, 0.8) == "contradicted"
    assert verdict(0.5, 0.5) == "undecided"
    assert judged("C31", "mini", []).verdict == "no data"


def test_c36_the_hours_of_all_group_word_runs() -> None:
    """A sum over every cell: there is nothing to be undecided about."""

    def verdict(mean: float, without: int = 0) -> str:
        found = [row for sweep in ("table1", "table2", "table3") for row in rows(sweep, "paper", hours(mean, 0.1))]
        lost = {row["cell"] for row in found[:without]}
        return judged("C36", "paper", [row for row in found if row["cell"] not in lost]).verdict

    assert verdict(2.5) == "supported"
    assert verdict(5.0) == "contradicted"
    assert verdict(2.5, without=1) == "no data"
