"""The claims about language models in made-up worlds, on stand-ins of the sweeps that they name, and winners."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis import claim_samples
from looprepro.analysis.claims import Finding, judge
from looprepro.analysis.results import Results, series_table
from looprepro.planning import Expansion, Sweep, expand, load_sweep
from looprepro.planning.claims import Claim, load_claims

PAPER = load_claims("rotate_the_loop")
HEAD = """\
name: NAME
title: A stand-in
place: Table 0
paper: rotate_the_loop
kind: table
base:
  task: {group: A5, length: 8}
  model: {width: 16, heads: 2, recurrence: {maximum: 8, mean: 6}}
  training: {steps: 100, batch: 4}
layout: {rows: [method], columns: [T], metric: last_token_accuracy}
scales:
  mini: {note: shows nothing, seeds: 0-11}
axes:
  method:
    - {role: diagonal, set: {model.injection.method: diagonal}}
    - {role: G=2, set: {model.injection.method: conformal, model.injection.groups: 2}}
"""
SIZES = """\
  size:
    - {role: S, set: {model.width: 16}}
    - {role: M, set: {model.width: 32}}
    - {role: L, set: {model.width: 64}}
evaluations: {budgets: [1, 8, 16, 32, 48], items: 8}
"""
GRADIENTS = """\
    - {role: G=1, set: {model.injection.method: conformal, model.injection.groups: 1}}
    - {role: d/2, set: {model.injection.method: conformal, model.injection.groups: d/2}}
  bptt:
    - {role: truncated, set: {training.lr: 1.0e-3}}
    - {role: full, set: {training.lr: 1.0e-4}}
evaluations: {budgets: [8], items: 8}
"""
METRICS = ("perplexity_packed", "last_word_accuracy", "defect_sphere", "defect_blockwise")
World = Callable[[str, dict[str, str], int, str, int], float]
"""(sweep, axes, T, metric, seed) -> value."""


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Expansion]:
    """table4 and table8 in the shape that the claims expect, known to the samples as if they were the project's."""
    made: dict[str, Sweep] = {}
    for name, axes in (("table4", SIZES), ("table8", GRADIENTS)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(HEAD.replace("NAME", name) + axes)
        made[name] = load_sweep(path)
    monkeypatch.setattr(claim_samples, "available_sweeps", lambda: list(made))
    monkeypatch.setattr(claim_samples, "load_sweep", made.__getitem__)
    return {name: expand(sweep, "mini") for name, sweep in made.items()}


def measured(sweeps: dict[str, Expansion], world: World) -> Results:
    rows = [
        {
            "sweep": sweep,
            "scale": "mini",
            "cell": planned.id,
            "seed": planned.cell.seed,
            "T": e.evaluation.T,
            "role_T": e.role,
            "evaluation": e.id,
            "metric": metric,
            "value": world(sweep, dict(place.axes), e.evaluation.T, metric, planned.cell.seed),
            "status": "done",
            **{f"axis_{axis}": role for axis, role in place.axes.items()},
        }
        for sweep, expansion in sweeps.items()
        for planned in expansion.cells
        for place in planned.placements
        for e in place.evaluations
        for metric in METRICS
    ]
    return Results("mini", Path("unused"), rows, series_table({}))


def noise(*about: object, scale: float) -> float:
    """Deterministic, in [-scale, scale]."""
    return scale * (int(hashlib.sha256(repr(about).encode()).hexdigest()[:8], 16) / 2**31 - 1)


AHEAD = {1: 0.96, 8: 0.85, 16: 0.845, 32: 0.84, 48: 0.83}
"""Perplexity of the conformal model over the diagonal's."""
BY_GROUPS = {"diagonal": 31.0, "G=1": 30.0, "G=2": 29.0, "d/2": 30.5}


def as_the_paper_says(sweep: str, axes: dict[str, str], T: int, metric: str, seed: int) -> float:
    method = axes["method"]
    if sweep == "table8":
        return BY_GROUPS[method] + (0.3 if axes["bptt"] == "truncated" else 0.0) + noise(axes, seed, scale=0.02)
    size = "SML".index(axes["size"])
    if metric in ("defect_sphere", "defect_blockwise"):
        return (0.06 + 0.02 * size) * (1 + T / 16) + noise(axes, T, seed, scale=0.001) if method == "diagonal" else 1e-15
    if metric == "perplexity_packed":
        level = (22.45, 15.0, 11.0)[size] * (1.1 if T == 1 else 1.0) * (1.0 if method == "diagonal" else AHEAD[T])
        return level + noise(axes, seed, scale=0.02) + noise(axes, T, seed, "small", scale=0.001)
    level = 0.3 + 0.03 * size
    if method == "G=2":
        level *= 1.2 if T > 1 else (0.97, 0.96, 1.02)[size]
    return level + noise(axes, T, seed, metric, scale=0.001)


def upside_down(sweep: str, axes: dict[str, str], T: int, metric: str, seed: int) -> float:
    value = as_the_paper_says(sweep, axes, T, metric, seed)
    if sweep == "table8":
        if axes["bptt"] == "full":  # the worst is the best, and behind the truncated ones
            return 80.0 - value
        return value
    if metric == "perplexity_packed":
        return 60.0 - value + (0.5 * T if axes["method"] == "diagonal" else 0.0)
    return 1.0 - value


def tossed(sweep: str, axes: dict[str, str], T: int, metric: str, seed: int) -> float:
    return 20.0 + noise("tossed", sweep, axes, T, metric, seed, scale=12.0)


LANGUAGE = ("C14a", "C14b", "C15", "C16", "C17", "C18", "C19", "C21a", "C22", "C32", "C33", "C34")


ROUNDING = ("C20a", "C20b")
"""Bounds: no statistic, one value above decides."""


def found(results: Results) -> dict[str, Finding]:
    return {finding.claim.id: finding for finding in judge(PAPER, results) if finding.claim.id in (*LANGUAGE, *ROUNDING)}


def test_every_claim_about_language_models_is_among_them() -> None:
    named = {
        claim.id for claim in PAPER for part in claim.parts for _, of in part.weighted if of["sweep"] in ("table4", "table8")
    }
    assert named == {*LANGUAGE, *ROUNDING}


@pytest.mark.parametrize(
    ("world", "verdict"), [(as_the_paper_says, "supported"), (upside_down, "contradicted"), (tossed, "undecided")]
)
def test_one_world_one_verdict(sweeps: dict[str, Expansion], world: World, verdict: str) -> None:
    verdicts = {id: finding.verdict for id, finding in found(measured(sweeps, world)).items()}
    bounds = dict.fromkeys(ROUNDING, "supported" if verdict == "supported" else "contradicted")
    assert verdicts == dict.fromkeys(LANGUAGE, verdict) | bounds


def test_one_run_per_cell_shows_signs_and_no_test(sweeps: dict[str, Expansion]) -> None:
    results = measured(sweeps, as_the_paper_says)
    alone = Results("mini", Path("unused"), [row for row in results.rows if row["seed"] == 0], series_table({}))
    findings = found(alone)
    assert {finding.verdict for finding in findings.values()} == {"single run"}
    assert all(part.agrees for id in LANGUAGE if id != "C14b" for part in findings[id].parts)
    assert [part.agrees for part in findings["C14b"].parts] == [True, True, False]


def test_without_rows_there_is_no_data(sweeps: dict[str, Expansion]) -> None:
    nothing = Results("mini", Path("unused"), [], series_table({}))
    assert {finding.verdict for finding in found(nothing).values()} == {"no data"}


def test_sizes_are_compared_each_with_the_next(sweeps: dict[str, Expansion]) -> None:
    parts = found(measured(sweeps, as_the_paper_says))["C22"].parts
    assert [part.what.split(" (")[0] for part in parts] == ["M > S", "L > M"]


WINNER = {
    "kind": "winner",
    "lowest": True,
    "of": {"sweep": "table8", "metric": "perplexity_packed", "T": "8"},
    "over": {"axis": "bptt", "roles": ["full", "truncated"]},
    "between": {"axis": "method"},
}


def winner(sweeps: dict[str, Expansion], levels: dict[str, float], truncated: dict[str, float], **part: Any) -> Finding:
    """Table 8 with these means; no jump between recipes beyond what they say."""

    def world(sweep: str, axes: dict[str, str], T: int, metric: str, seed: int) -> float:
        means = truncated if axes.get("bptt") == "truncated" else levels
        return means.get(axes["method"], 40.0) + noise(axes, seed, scale=0.2)

    claim = Claim.model_validate({"id": "C1", "family": "f", "says": "s", "place": "L1", "parts": [{**WINNER, **part}]})
    return judge([claim], measured(sweeps, world))[0]


def test_a_winner_is_the_same_whoever_it_is(sweeps: dict[str, Expansion]) -> None:
    for best in ("diagonal", "G=2"):
        finding = winner(sweeps, {best: 30.0}, {best: 35.0, "G=1": 36.0})
        assert finding.verdict == "supported"
        assert finding.deciding is not None
        assert (finding.deciding.n, finding.deciding.statistic) == (12, "Welch")
        assert finding.deciding.effect == pytest.approx(1.0, abs=0.1)  # the narrower of its two leads


def test_another_winner_contradicts_and_no_clear_winner_decides_nothing(sweeps: dict[str, Expansion]) -> None:
    changed = winner(sweeps, {"G=2": 30.0}, {"G=1": 35.0})
    assert changed.verdict == "contradicted"
    assert "(G=2 at full, G=1 at truncated)" in changed.reason
    assert winner(sweeps, {"G=2": 30.0}, {}).verdict == "undecided"
    assert winner(sweeps, {}, {}).verdict == "undecided"


def test_the_highest_wins_where_higher_is_better(sweeps: dict[str, Expansion]) -> None:
    assert winner(sweeps, {"G=2": 50.0}, {"G=2": 50.0}, lowest=False).verdict == "supported"
    assert winner(sweeps, {"G=2": 50.0}, {"G=2": 50.0}).verdict == "undecided"


def test_only_what_runs_in_every_setting_competes(sweeps: dict[str, Expansion]) -> None:
    few = winner(sweeps, {"G=2": 30.0}, {"G=2": 30.0}, between={"axis": "method", "except": ["diagonal", "G=1", "d/2"]})
    assert (few.verdict, few.reason) == ("no data", "table8 runs fewer than two of method in every setting")
    planned = sweeps["table8"]
    kept = [c for c in planned.cells if c.placements[0].axes["bptt"] == "full" or c.placements[0].axes["method"] != "G=2"]
    samples = claim_samples.Samples(Results("mini", Path("unused"), [], series_table({})))
    samples._expansions["table8"] = replace(planned, cells=kept)
    assert samples.roles("table8", "method", {"bptt": "truncated"}) == ["diagonal", "G=1", "d/2"]
    assert samples.roles("table8", "method") == ["diagonal", "G=2", "G=1", "d/2"]
