"""The claims of Fixed-Point Reasoners in made-up worlds: where they hold, where the opposite holds, in noise, without data."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.claim_samples import Samples
from looprepro.analysis.claims import judge
from looprepro.analysis.results import Points, Results, series_table
from looprepro.analysis.rows import LOGGED
from looprepro.planning import Expansion, expand, load_sweep
from looprepro.planning.claims import RESERVED, load_claims

PAPER = load_claims("fixed_point_reasoners")
MEASURED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fprm_table1": (("score", "exact_accuracy"), ("iterations", "exact_accuracy")),
    "fprm_table3": (("exact_accuracy",), ()),
    "fprm_fig1": (("exact_accuracy",), ()),
    "fprm_scaling": (("halted", "converged", "effective_layers", "exact_accuracy"), ("exact_accuracy_by_difficulty",)),
    "fprm_depth": (("max_length",), ("activation_norm",)),
    "fprm_adaptive": (("effective_layers", "exact_accuracy"), ("effective_layers_by_difficulty",)),
    "fprm_fig13": (("exact_accuracy",), ()),
    "fprm_norms": (("exact_accuracy",), ()),
    "fprm_tolerance": (("exact_accuracy",), ()),
    "fprm_convolution": (("exact_accuracy",), ()),
}
"""Sweep -> metrics and series that the claims look at."""
Value = Callable[[str, dict[str, str], str, str], float]
"""(sweep, axes, role of T, metric) -> mean over seeds."""
Curve = Callable[[str, dict[str, str], str], list[float]]
"""(sweep, axes, series) -> y."""


@cache
def expansion(sweep: str, scale: str) -> Expansion:
    return expand(load_sweep(sweep), scale)


def wiggle(*about: object) -> float:
    """Deterministic, in [-1, 1], different for every cell and number."""
    return random.Random(repr(about)).uniform(-1.0, 1.0)


def world(scale: str, value: Value, curve: Curve, spread: float, seeds: int = 3, draw: int = 0) -> Results:
    """Rows and series of every planned cell; each seed differs from the mean by up to ``spread`` of it."""
    rows: list[dict[str, Any]] = []
    series: dict[str, dict[str, Points]] = {}
    for sweep, (metrics, names) in MEASURED.items():
        for planned in expansion(sweep, scale).cells:
            seed = planned.cell.seed
            if seed >= seeds:
                continue
            for place in planned.placements:
                axes = dict(place.axes)
                for e in place.evaluations:
                    shared = {
                        "sweep": sweep,
                        "scale": scale,
                        "overrides": "",
                        "cell": planned.id,
                        "seed": seed,
                        "T": e.evaluation.T,
                        "role_T": e.role,
                        "evaluation": e.id,
                        "status": "done",
                        "task": planned.cell.task.kind,
                        **{f"axis_{axis}": role for axis, role in axes.items()},
                    }
                    for metric in metrics:
                        about = (sweep, sorted(axes.items()), e.role, metric, seed, draw)
                        found = value(sweep, axes, e.role, metric) * (1 + spread * wiggle(*about))
                        rows.append(shared | {"metric": metric, "value": found})
                    for name in names:
                        y = [
                            v * (1 + spread * wiggle(sweep, sorted(axes.items()), name, seed, i, draw))
                            for i, v in enumerate(curve(sweep, axes, name))
                        ]
                        stored = name if name in LOGGED else f"{name}@{e.id}"
                        series.setdefault(planned.id, {})[stored] = ([float(i) for i in range(len(y))], y)
    return Results(scale, Path("unused"), rows, series_table(series))


GAMMAS = {"0.9": 0.0, "0.95": 0.3, "0.99": 0.6, "0.997": 1.0, "1": 1.2}
T_SHARE = {"cap/8": 0.0, "cap/4": 0.1, "cap/2": 0.2, "cap": 0.3}


def claimed(sweep: str, axes: dict[str, str], T: str, metric: str) -> float:
    """As the paper says."""
    model = axes.get("model", "")
    if metric == "converged":
        return 0.8 if axes.get("gamma") == "1" else 0.97
    if metric == "max_length":
        depth = int(axes["layers"]) if "layers" in axes else 8
        return {"FPRM": 4.0 + depth, "post-norm": 8.0, "pre-norm": 12.0 if depth < 16 else 2.0}[model]
    if metric == "effective_layers":
        scale = 40.0 if model == "FPRM" else 90.0
        return scale + 20 * GAMMAS.get(axes.get("gamma", ""), 0.0) + int(axes.get("patience", "5"))
    if sweep == "fprm_table1":
        if axes["puzzle"] == "arc2":
            return {"URM": 0.16}.get(model, 0.062)
        return {"FPRM": 0.9, "TRM": 0.7}.get(model, 0.5)
    if sweep == "fprm_fig1":
        return (0.6 + 2 * T_SHARE[T]) if model == "FPRM" else (0.5 + T_SHARE[T])
    if sweep == "fprm_scaling":
        return 0.8 - 0.2 * (1 - min(GAMMAS[axes["gamma"]], 1.0)) ** 4 + 0.001 * int(axes["patience"])
    if sweep == "fprm_adaptive":
        return 0.9 if model == "FPRM" else 0.4
    if sweep == "fprm_norms":
        return {"FPRM": 0.9, "FPRM post-norm": 0.6}.get(model, 0.4)
    if sweep == "fprm_table3":
        return 0.75 if model == "TRM" else 0.6
    if sweep == "fprm_fig13":
        return {"most in supervision": 0.8, "between": 0.75}.get(axes["split"], 0.7)
    if sweep == "fprm_convolution":
        return {"2d": 0.9, "1d": 0.7}.get(axes["convolution"], 0.2)
    return 0.8


def claimed_curve(sweep: str, axes: dict[str, str], name: str) -> list[float]:
    """As the paper says; 24 points, so that quarters and thirds are whole."""
    steps = [i / 23 for i in range(24)]
    model = axes.get("model", "FPRM")
    match name:
        case "activation_norm":
            return [10.0 * 1.6**i if model == "pre-norm" else 10.0 + s for i, s in enumerate(steps)]
        case "effective_layers_by_difficulty":
            return [40.0] * 24 if model == "TRM" else [10.0 + 50 * s**3 for s in steps]
        case "exact_accuracy_by_difficulty":
            return [0.95 - s * (0.6 - 0.4 * GAMMAS.get(axes.get("gamma", ""), 0.0)) for s in steps]
        case "iterations":
            return [20.0 if model == "FPRM" else 8.0] * 24
    return [0.99] * 24


def opposite(sweep: str, axes: dict[str, str], T: str, metric: str) -> float:
    """Orders reversed; what should be near is apart."""
    if metric == "converged":
        return 1.0 if axes.get("gamma") == "1" else 0.4
    if metric == "max_length":
        depth = int(axes["layers"]) if "layers" in axes else 8
        return {"FPRM": 40.0 - depth, "post-norm": 4.0 + 2 * depth, "pre-norm": 4.0 + 3 * depth}[axes["model"]]
    if metric == "effective_layers":
        return 200.0 - claimed(sweep, axes, T, metric)
    value = 1.2 - claimed(sweep, axes, T, metric)
    if sweep == "fprm_table1" and axes["puzzle"] == "sudoku" and axes["model"] == "TRM":
        return 0.7  # between its accuracy by its head (0.8) and nothing
    if sweep == "fprm_table1" and axes["puzzle"] == "arc2":
        return {"FPRM": 0.5, "TRM": 0.3}.get(axes["model"], 0.1)
    if sweep == "fprm_norms" and axes["model"] == "FPRM":
        return 0.1
    if sweep == "fprm_tolerance":
        return 0.2 if axes["tolerance"] == "0.1" else 0.5
    return value


def opposite_curve(sweep: str, axes: dict[str, str], name: str) -> list[float]:
    steps = [i / 23 for i in range(24)]
    model = axes.get("model", "FPRM")
    match name:
        case "activation_norm":
            return [10.0 + s if model == "pre-norm" else 10.0 * 1.6**i for i, s in enumerate(steps)]
        case "effective_layers_by_difficulty":
            return [10.0 + 50 * s for s in steps] if model == "TRM" else [60.0 - 50 * s**3 for s in steps]
        case "exact_accuracy_by_difficulty":
            return [0.3 + 0.4 * GAMMAS.get(axes.get("gamma", ""), 0.0) * (1 - s) for s in steps]
        case "iterations":
            return [900.0 if model == "FPRM" else 8.0] * 24
    return [0.5] * 24


def flat(sweep: str, axes: dict[str, str], T: str, metric: str) -> float:
    """The same everywhere, and on the margin where there is one."""
    return {"converged": 0.95, "max_length": 10.0, "effective_layers": 60.0}.get(metric, 0.6)


def flat_curve(sweep: str, axes: dict[str, str], name: str) -> list[float]:
    return [{"activation_norm": 10.0, "iterations": 20.0}.get(name, 0.9)] * 24


ELSEWHERE = {claim.id for claim in PAPER if any(part.kind == "elsewhere" for part in claim.parts)}
AT_PAPER_ONLY = {claim.id for claim in PAPER if any(part.scales for part in claim.parts)}
JUDGED = {claim.id for claim in PAPER} - ELSEWHERE


def verdicts(results: Results) -> dict[str, str]:
    return {found.claim.id: found.verdict for found in judge(PAPER, results)}


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_in_the_papers_world_its_claims_hold(scale: str) -> None:
    """With three seeds, as the sweeps have; a small spread."""
    found = verdicts(world(scale, claimed, claimed_curve, 0.001))
    expected = JUDGED if scale == "paper" else JUDGED - AT_PAPER_ONLY
    assert {id: found[id] for id in expected if found[id] != "supported"} == {}
    assert {id for id, verdict in found.items() if verdict == "no data"} == {claim.id for claim in PAPER} - expected


def test_in_the_opposite_world_they_are_contradicted() -> None:
    found = verdicts(world("paper", opposite, opposite_curve, 0.001))
    # F12 and F13 say of one number that it is large and that it is never 1: they are contradicted by other worlds.
    assert {id: found[id] for id in JUDGED - {"F12", "F13"} if found[id] != "contradicted"} == {}


@pytest.mark.parametrize(("claim", "share", "spread"), [("F12", 0.2, 0.01), ("F13", 1.0, 0.0)])
def test_how_many_converge_undamped_decides(claim: str, share: float, spread: float) -> None:
    found = verdicts(world("paper", lambda *about: share if about[3] == "converged" else 0.5, claimed_curve, spread))
    assert found[claim] == "contradicted"


def test_giving_up_is_not_converging() -> None:
    """With gamma 0.9 a long enough cap ends every iteration, by the smallest step: that removes no oscillation (F16)."""

    def given_up(sweep: str, axes: dict[str, str], T: str, metric: str) -> float:
        if metric == "halted":
            return 0.99 if axes["gamma"] == "0.9" else 0.6
        return 0.6 if metric == "converged" else claimed(sweep, axes, T, metric)

    assert verdicts(world("paper", given_up, claimed_curve, 0.001))["F16"] == "contradicted"


def test_in_a_world_of_noise_nothing_is_supported_that_compares() -> None:
    """Everything equal up to a spread of half its size: orders are found, and near is shown, as rarely as the level says."""
    worlds = [verdicts(world("paper", flat, flat_curve, 0.5, draw=draw)) for draw in range(10)]
    factors = {
        "F3",
        "F6",
        "F7",
        "F8",
        "F12",
        "F13",
        "F50",
        "F56",
    }  # of these a factor or a bound is right or wrong here by itself
    compared = [found[id] for found in worlds for id in JUDGED - factors]
    assert compared.count("supported") <= 0.03 * len(compared)
    assert compared.count("contradicted") <= 0.03 * len(compared)
    assert compared.count("undecided") >= 0.95 * len(compared)


def test_a_single_seed_shows_a_sign_only() -> None:
    found = verdicts(world("paper", claimed, claimed_curve, 0.001, seeds=1))
    assert {id: found[id] for id in JUDGED if found[id] != "single run"} == {}


def test_without_data_there_is_no_verdict_and_a_reason() -> None:
    findings = judge(PAPER, Results("paper", Path("unused"), [], series_table({})))
    assert {finding.verdict for finding in findings} == {"no data"}
    assert all(finding.reason for finding in findings)


def test_claims_about_benchmarks_are_not_judged_on_stand_ins() -> None:
    assert {f"F{i}" for i in (22, 23, 24, 25, 26, 27)} <= AT_PAPER_ONLY
    reasons = {
        f.claim.id: f.reason for f in judge(PAPER, world("mini", claimed, claimed_curve, 0.001)) if f.claim.id in ("F22", "F27")
    }
    assert set(reasons.values()) == {"this is about scale paper only"}


def test_all_58_are_there_and_name_axes_and_roles_that_the_sweeps_have() -> None:
    assert [claim.id for claim in PAPER] == [f"F{i}" for i in range(1, 59)]
    samples = Samples(Results("paper", Path("unused"), [], series_table({})))
    for claim in PAPER:
        for part in claim.parts:
            for _, selector in part.weighted:
                assert selector["sweep"] in MEASURED
                for key, role in selector.items():
                    if key in RESERVED or role == "{role}":
                        continue
                    assert role in samples.roles(selector["sweep"], key), f"{claim.id}: {key} = {role}"


def test_the_tests_that_hold_the_theorems_exist() -> None:
    root = Path(__file__).parents[2]
    for claim in PAPER:
        for part in claim.parts:
            if part.where and "tests/" in part.where:
                path, name = part.where[part.where.index("tests/") :].split(", ")
                assert f"def {name}(" in (root / path).read_text(encoding="utf-8"), claim.id
