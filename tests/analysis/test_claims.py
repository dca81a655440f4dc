"""Verdicts: every kind of part with data that support, contradict, leave undecided and are absent; and all claims at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.claim_samples import Samples
from looprepro.analysis.claims import Finding, judge
from looprepro.analysis.decomposition import decomposition
from looprepro.analysis.results import Results, series_table
from looprepro.planning import Expansion, available_sweeps, expand, load_sweep
from looprepro.planning.claims import RESERVED, Claim, load_claims

Value = Callable[[str, str, str, str, str, int], float | None]
"""(sweep, group, method, role of T, metric, seed) -> value."""
PAPER = load_claims("rotate_the_loop")
METRICS = (
    "last_token_accuracy",
    "mean_token_accuracy",
    "defect_sphere",
    "defect_blockwise",
    "turning",
    "log_contraction",
    "seen_in_training",
)


@cache
def expansion(sweep: str, scale: str) -> Expansion:
    return expand(load_sweep(sweep), scale)


def noise(*about: object, scale: float = 0.01) -> float:
    """Deterministic, in [-scale, scale], different for every cell."""
    return scale * random.Random(repr(about) + "a").uniform(-1.0, 1.0)


def collected(value: Value, scale: str, sweeps: Iterable[str], seeds: int = 10, **more: Any) -> Results:
    """Rows of every planned cell, each metric's value from ``value`` (None: no row); ``more``: further columns, or
    functions of a cell's id."""
    rows = []
    for sweep in sweeps:
        for planned in expansion(sweep, scale).cells:
            if planned.cell.seed >= seeds:
                continue
            for place in planned.placements:
                for e in place.evaluations:
                    for metric in METRICS:
                        found = value(sweep, place.axes["group"], place.axes["method"], e.role, metric, planned.cell.seed)
                        if found is None:
                            continue
                        rows.append(
                            {
                                "sweep": sweep,
                                "scale": scale,
                                "overrides": "",
                                "cell": planned.id,
                                "seed": planned.cell.seed,
                                "T": e.evaluation.T,
                                "role_T": e.role,
                                "evaluation": e.id,
                                "metric": metric,
                                "value": found,
                                "status": "done",
                                **{f"axis_{axis}": role for axis, role in place.axes.items()},
                                **{name: column(planned.id) if callable(column) else column for name, column in more.items()},
                            }
                        )
    return Results(scale, Path("unused"), rows, series_table({}))


def one(part: Mapping[str, Any], results: Results, **more: Any) -> Finding:
    claim = Claim.model_validate({"id": "C1", "family": "f", "says": "s", "place": "L1", "parts": [part], **more})
    return judge([claim], results)[0]


def accuracies(levels: Mapping[str, float], spread: float = 0.01, seeds: int = 10, scale: str = "mini") -> Results:
    """Table 1 with these means by method (absent: no runs), the same at every T and on both groups."""

    def value(sweep: str, group: str, method: str, T: str, metric: str, seed: int) -> float | None:
        if metric != "last_token_accuracy" or method not in levels:
            return None
        return levels[method] + noise(group, method, T, seed, scale=spread)

    return collected(value, scale, ["table1"], seeds)


ON = {"sweep": "table1", "group": "A5", "T": "T_max"}
GREATER = {"kind": "greater", "of": ON, "a": {"method": "G=2"}, "b": {"method": "diagonal"}}
EQUAL = {"kind": "equal", "margin": 0.05, "of": ON, "a": {"method": "d/2"}, "b": {"method": "G=1"}}
RANGE = {"kind": "range", "low": 0.5, "high": 0.6, "of": {**ON, "method": "G=2"}}
SUM = {
    "kind": "contrast",
    "of": ON,
    "terms": [
        {"weight": 1, "of": {"method": "G=2"}},
        {"weight": -1, "of": {"method": "G=1"}},
        {"weight": -0.5, "of": {"method": "G=4"}},
    ],
}


@pytest.mark.parametrize(
    ("part", "supporting", "contradicting", "unclear"),
    [
        (GREATER, {"G=2": 0.8, "diagonal": 0.7}, {"G=2": 0.7, "diagonal": 0.8}, {"G=2": 0.7, "diagonal": 0.7}),
        (EQUAL, {"d/2": 0.70, "G=1": 0.71}, {"d/2": 0.70, "G=1": 0.80}, {"d/2": 0.70, "G=1": 0.75}),
        (RANGE, {"G=2": 0.55}, {"G=2": 0.65}, {"G=2": 0.6}),
        (SUM, {"G=2": 0.9, "G=1": 0.4, "G=4": 0.4}, {"G=2": 0.6, "G=1": 0.5, "G=4": 0.4}, {"G=2": 0.6, "G=1": 0.4, "G=4": 0.4}),
    ],
    ids=["greater", "equal", "range", "contrast"],
)
def test_a_tested_part(part: Any, supporting: Any, contradicting: Any, unclear: Any) -> None:
    assert one(part, accuracies(supporting)).verdict == "supported"
    assert one(part, accuracies(contradicting)).verdict == "contradicted"
    assert one(part, accuracies(unclear)).verdict == "undecided"
    assert one(part, accuracies(supporting, spread=0.9)).verdict == "undecided"
    started = one(part, accuracies(supporting, seeds=9))
    assert (started.verdict, started.p, started.reason) == ("undecided", None, "9 of 10 seeds so far and no verdict before all")
    lacking = one(part, accuracies({}))
    assert (lacking.verdict, lacking.p) == ("no data", None)
    assert "no finished run of table1" in lacking.reason
    single = one(part, accuracies(supporting, seeds=1))
    assert (single.verdict, single.p) == ("single run", None)
    assert single.deciding is not None
    assert (single.deciding.agrees, single.deciding.n) == (True, 1)
    assert one(part, accuracies(contradicting, seeds=1)).deciding.agrees is False  # type: ignore[union-attr]


def over_depth(gain: float, spread: float, seeds: int = 10) -> Results:
    """G = 2 gains ``gain`` from T_max/2 to T_max; seeds differ far more than the two budgets of one seed."""

    def value(sweep: str, group: str, method: str, T: str, metric: str, seed: int) -> float | None:
        if metric != "last_token_accuracy" or method != "G=2" or T == "3T_max/2":
            return None
        return 0.4 + 0.05 * seed + (gain if T == "T_max" else 0.0) + noise(T, seed, scale=spread)

    return collected(value, "mini", ["table1"], seeds)


PAIRED = {
    "kind": "greater",
    "paired": True,
    "of": {"sweep": "table1", "group": "A5", "method": "G=2"},
    "a": {"T": "T_max"},
    "b": {"T": "T_max/2"},
}


def test_a_paired_part_sees_through_the_spread_between_seeds() -> None:
    assert one(PAIRED, over_depth(0.02, 0.002)).verdict == "supported"
    assert one({**PAIRED, "paired": False}, over_depth(0.02, 0.002)).verdict == "undecided"
    assert one(PAIRED, over_depth(-0.02, 0.002)).verdict == "contradicted"
    assert one(PAIRED, over_depth(0.0, 0.002)).verdict == "undecided"
    assert one(PAIRED, over_depth(0.02, 0.002, seeds=1)).verdict == "single run"
    assert one(PAIRED, accuracies({})).verdict == "no data"


def test_a_verdict_waits_for_every_planned_seed() -> None:
    """A study that is filled in parts could otherwise stop where the verdict is liked."""
    for seeds in (2, 5, 9):
        found = one(GREATER, accuracies({"G=2": 0.8, "diagonal": 0.7}, seeds=seeds))
        assert (found.verdict, found.p) == ("undecided", None)
        assert found.reason.startswith(f"{seeds} of 10 seeds so far")
        assert found.deciding is not None
        assert found.deciding.low is not None, "the estimate and its interval are shown all the same"


def test_a_side_that_waits_is_enough_and_diverged_seeds_have_run() -> None:
    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    whole = one(GREATER, results).verdict
    lost = [row for row in results.rows if row["seed"] == 3 and row["axis_method"] == "G=2"]
    for row in lost:
        del row["value"], row["metric"]
        row |= {"status": "diverged", "evaluation": "T3-of-an-older-version"}
    diverged = one(GREATER, results).verdict
    for row in lost:
        row["status"] = "failed"
    failed = one(GREATER, results)
    results.rows[:] = [row for row in results.rows if row not in lost]
    assert (whole, diverged, failed.verdict, one(GREATER, results).verdict) == ("supported", "supported", *2 * ("undecided",))
    assert failed.reason == "9 of 10 seeds so far, 1 failed, and no verdict before all"


def test_one_run_under_two_seeds_has_run_and_counts_once() -> None:
    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    for row in results.rows:
        row["loss_digest"] = f"{row['axis_group']} {row['axis_method']} {max(row['seed'], 1)}"
    found = one(GREATER, results)
    assert found.verdict == "supported"
    assert found.deciding is not None
    assert found.deciding.n == 9


def test_no_verdict_on_a_few_survivors() -> None:
    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    for row in results.rows:
        if row["seed"] < 6 and row["axis_method"] == "diagonal":
            del row["value"], row["metric"]
            row["status"] = "diverged"
    found = one(GREATER, results)
    assert (found.verdict, found.reason) == ("undecided", "6 of 10 seeds diverged, and no verdict on the others alone")


def test_a_measurement_that_the_sweep_no_longer_wants_is_no_sample() -> None:
    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    stale = [row | {"evaluation": "T3-older", "value": 0.1, "cell": "a-cell-before"} for row in results.rows]
    stale += [row | {"evaluation": "T3-older", "value": 0.1} for row in results.rows]
    results.rows[:0] = stale
    assert one(GREATER, results).verdict == "supported"
    results.rows[:] = stale
    found = one(GREATER, results)
    assert (found.verdict, found.reason) == (
        "no data",
        "table1 was measured by an older version: looprepro sweep table1 measures its cells again",
    )


def test_a_broken_bound_waits_for_nobody() -> None:
    part = {"kind": "bound", "limit": 0.75, "of": {**ON, "method": "G=2"}}
    assert one(part, accuracies({"G=2": 0.8}, seeds=3)).verdict == "contradicted"
    assert one(part, accuracies({"G=2": 0.8}, seeds=1)).verdict == "contradicted"
    assert one(part, accuracies({"G=2": 0.7}, seeds=3)).verdict == "undecided"
    both = {**part, "of": {**ON, "method": "{role}"}, "over": {"axis": "method", "roles": ["G=1", "G=2"]}}
    assert one(both, accuracies({"G=2": 0.8})).verdict == "contradicted", "of G = 1 there is nothing"
    assert one(both, accuracies({"G=2": 0.7})).verdict == "no data"


@pytest.mark.parametrize("kind", ["disjoint", "range", "bound"])
def test_what_compares_no_pairs_cannot_be_paired(kind: str) -> None:
    part = {**GREATER, "kind": kind, "paired": True, "low": 0.1, "limit": 0.1}
    with pytest.raises(ValueError, match=f"{kind} compares no pairs"):
        one(part, accuracies({}))


def test_disjoint_intervals_are_asked_for_beside_a_difference() -> None:
    part = {**GREATER, "kind": "disjoint"}
    assert one(part, accuracies({"G=2": 0.8, "diagonal": 0.7})).verdict == "supported"
    close = accuracies({"G=2": 0.706, "diagonal": 0.7})
    assert one(GREATER, close).verdict == "supported"
    assert one(part, close).verdict == "undecided", "significant, but the intervals overlap"
    assert one(part, accuracies({"G=2": 0.7, "diagonal": 0.8})).verdict == "undecided"
    assert one(part, accuracies({})).verdict == "no data"


def test_a_bound_holds_for_every_value_or_not() -> None:
    part = {"kind": "bound", "limit": 0.75, "of": {**ON, "method": "G=2"}}
    assert one(part, accuracies({"G=2": 0.7})).verdict == "supported"
    assert one(part, accuracies({"G=2": 0.75})).verdict == "contradicted"
    assert one(part, accuracies({"G=2": 0.7}, seeds=1)).verdict == "single run"
    assert one(part, accuracies({})).verdict == "no data"


def test_a_total_needs_every_cell_on_the_device() -> None:
    part = {"kind": "total", "low": 20.0, "high": 40.0, "sweeps": ["table3"], "device": "H100", "scales": ["smoke"]}

    def measured(hours: float, seeds: int = 2, device: str = "NVIDIA H100 80GB") -> Results:
        return collected(lambda *about: 0.5, "smoke", ["table3"], seeds, device=device, device_hours=hours)

    assert one(part, measured(4.0)).verdict == "supported"
    assert one(part, measured(4.0)).deciding.effect == pytest.approx(32.0)  # type: ignore[union-attr]  # 8 cells
    assert one(part, measured(6.0)).verdict == "contradicted"
    assert one(part, measured(4.0, seeds=1)).reason == "4 of 8 cells are finished on H100"
    assert one(part, measured(4.0, device="cpu")).verdict == "no data"
    assert one({**part, "scales": ["paper"]}, measured(4.0)).reason == "this is about scale paper only"


def test_the_tail_of_the_poisson_is_arithmetic() -> None:
    """P(N >= 16) at mean 8 is 0.82%."""
    part = {"kind": "poisson_tail", "mean": 8.0, "reaches": 16, "limit": 0.01}
    found = one(part, accuracies({}))
    assert found.verdict == "supported"
    assert found.deciding is not None
    assert found.deciding.effect == pytest.approx(0.00823, abs=5e-6)
    assert one({**part, "limit": 0.008}, accuracies({})).verdict == "contradicted"


def test_all_roles_of_the_plan_must_have_data() -> None:
    """A peak over G is not supported while one G has not been run."""
    part = {**GREATER, "b": {"method": "{role}"}, "over": {"axis": "method", "except": ["G=2"]}}
    levels = dict.fromkeys(("diagonal", "G=1", "G=4", "G=8", "d/2"), 0.7) | {"G=2": 0.8}
    assert one(part, accuracies(levels)).verdict == "supported"
    assert len(one(part, accuracies(levels)).parts) == 5
    del levels["G=8"]
    assert one(part, accuracies(levels)).verdict == "no data"


def test_at_least_two_of_three() -> None:
    part = {**GREATER, "b": {"method": "{role}"}, "over": {"axis": "method", "roles": ["G=1", "G=4", "G=8"]}}
    levels = {"G=2": 0.8, "G=1": 0.7, "G=4": 0.7, "G=8": 0.9}
    assert one(part, accuracies(levels)).verdict == "contradicted"
    assert one(part, accuracies(levels), need=2).verdict == "supported"
    assert one(part, accuracies(levels | {"G=4": 0.9}), need=2).verdict == "contradicted"


def test_a_role_that_the_scale_lacks_is_no_data() -> None:
    assert one({**GREATER, "a": {"method": "G=8"}}, accuracies({"diagonal": 0.7}, scale="smoke")).reason == (
        "table1 has no method = G=8 at scale smoke"
    )


def test_holm_runs_over_the_whole_family_even_where_members_have_no_data() -> None:
    def claim(id: str, family: str, method: str) -> Claim:
        part = {**GREATER, "a": {"method": method}}
        return Claim.model_validate({"id": id, "family": family, "says": "s", "place": "L1", "parts": [part]})

    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    alone, *family = judge([claim("C1", "x", "G=2"), claim("C2", "y", "G=2"), claim("C3", "y", "G=4")], results)
    assert alone.p_adjusted == alone.p
    assert family[0].p_adjusted == pytest.approx(2 * (alone.p or 0))
    assert family[1].verdict == "no data"


def test_claims_that_no_data_could_decide_do_not_count_in_their_family() -> None:
    def claim(id: str, part: Mapping[str, Any]) -> Claim:
        return Claim.model_validate({"id": id, "family": "f", "says": "s", "place": "L1", "parts": [part]})

    never = {"kind": "elsewhere", "where": "a theorem"}
    first, theorem, other_scale = judge(
        [claim("C1", GREATER), claim("C2", never), claim("C3", {**GREATER, "scales": ["paper"]})],
        accuracies({"G=2": 0.8, "diagonal": 0.7}),
    )
    assert first.p_adjusted == first.p
    assert (theorem.verdict, other_scale.verdict) == ("no data", "no data")


@pytest.mark.parametrize(("end", "inside", "outside"), [("low", 0.6, 0.4), ("high", 0.4, 0.6)])
def test_a_range_may_have_one_end_only(end: str, inside: float, outside: float) -> None:
    """A share cannot exceed 1, so an upper end there would be one more thing to show for nothing."""
    part = {"kind": "range", end: 0.5, "of": {**ON, "method": "G=2"}}
    found = one(part, accuracies({"G=2": inside}))
    assert found.verdict == "supported"
    assert found.parts[0].what.startswith({"low": "0.5 < value (", "high": "value < 0.5 ("}[end])
    assert one(part, accuracies({"G=2": outside})).verdict == "contradicted"
    assert one(part, accuracies({"G=2": 0.5})).verdict == "undecided"
    with pytest.raises(ValueError, match="low or high"):
        one({"kind": "range", "of": ON}, accuracies({}))


def test_a_diverged_seed_is_counted_and_is_no_number() -> None:
    results = accuracies({"G=2": 0.8, "diagonal": 0.7})
    for row in results.rows:
        if row["seed"] == 3 and row["axis_method"] == "G=2":
            del row["value"], row["metric"]
            row["status"] = "diverged"
    deciding = one(GREATER, results).deciding
    assert deciding is not None
    assert (deciding.n, deciding.diverged) == (9, 1)


# --- the claims of the paper, all at once, in three made-up worlds -------------------------------------------------------

GROUPS = ["G=1", "G=2", "G=4", "G=8", "G=16", "G=32", "G=64", "G=128", "d/2"]
CONFORMAL = dict(zip(["diagonal", *GROUPS], [0.692, 0.75, 0.894, 0.62, 0.63, 0.70, 0.71, 0.72, 0.73, 0.741], strict=True))
GROUPED = dict(zip(["diagonal", *GROUPS], [0.692, 0.74, 0.810, 0.78, 0.76, 0.74, 0.73, 0.72, 0.71, 0.70], strict=True))
CHARTS = {"diagonal": 0.408, "pairwise": 0.721, "householder": 0.552, "cayley": 0.274}
DEPTH = {"T_max/2": -0.1, "T_max": 0.0, "3T_max/2": 0.03}
TABLES = ("table1", "table2", "table3", "table5_words", "table5_words_blockwise")


def as_the_paper_says(sweep: str, group: str, method: str, T: str, metric: str, seed: int) -> float:
    jitter = noise(group, method, T, seed, sweep if method != "diagonal" else "", scale=0.004)
    levels = {"table2": GROUPED, "table3": CHARTS}.get(sweep, CONFORMAL)
    depth = {"T_max/2": 1, "T_max": 2, "3T_max/2": 3}[T]
    match metric:
        case "last_token_accuracy":
            return levels[method] + DEPTH[T] - (0.12 if group == "S5" else 0.0) + jitter
        case "mean_token_accuracy":
            return 0.95 + jitter
        case "defect_sphere" | "defect_blockwise":
            return 0.1 * depth + jitter if method == "diagonal" else 1e-15
        case "turning":
            return 0.3 / depth + jitter if method == "diagonal" else 0.5 + 1e-14 * jitter
        case "log_contraction":
            return -0.8 + jitter
    return 0.0


def upside_down(sweep: str, group: str, method: str, T: str, metric: str, seed: int) -> float:
    """Orders reversed, equal things apart, nothing within its bound."""
    value = as_the_paper_says(sweep, group, method, T, metric, seed)
    if metric == "mean_token_accuracy":
        return 0.5 + (0.1 if method == "diagonal" else 0.0) + 0.1 * value
    if metric == "last_token_accuracy" and method in ("G=1", "d/2") and sweep == "table1":
        return (0.85 if method == "G=1" else 0.99) - value  # apart from each other, and both effects larger than their sum
    if metric == "turning" and method != "diagonal":
        return value + DEPTH[T]
    return 1.0 - value


def tossed(sweep: str, group: str, method: str, T: str, metric: str, seed: int) -> float:
    """Nothing but noise, as wide as the margins; norms shrink, since a bound has no noise."""
    if metric == "log_contraction":
        return -0.8
    draw = sweep.replace("_words", "")  # one claim in twenty falls for noise: these draws are among the others
    return 0.8 + noise(group, method, T, seed, draw, metric, scale=0.15)


def verdicts(value: Value, scale: str = "paper") -> dict[str, str]:
    return {found.claim.id: found.verdict for found in judge(PAPER, collected(value, scale, TABLES))}


STATISTICAL = (
    "C1",
    "C2",
    "C3",
    "C4",
    "C5",
    "C7",
    "C8",
    "C9",
    "C10",
    "C11",
    "C12",
    "C13",
    "C21b",
    "C25",
    "C26",
    "C27",
    "C29",
    "C39",
)
CERTAIN = ("C20c", "C20d", "C35")


def test_in_the_papers_world_its_claims_hold_but_those_that_its_own_numbers_contradict() -> None:
    found = verdicts(as_the_paper_says)
    assert {id for id, verdict in found.items() if verdict == "supported"} == {*STATISTICAL, *CERTAIN, "C6", "C37"}
    assert {id for id, verdict in found.items() if verdict == "contradicted"} == {"C28", "C38"}


def test_in_the_opposite_world_every_claim_with_data_is_contradicted() -> None:
    found = verdicts(upside_down)
    wrong = {id: found[id] for id in (*STATISTICAL, *CERTAIN, "C6") if found[id] != "contradicted"}
    assert wrong == {}
    assert found["C38"] == "supported"


def test_in_a_world_of_noise_nothing_is_decided() -> None:
    found = verdicts(tossed)
    assert {id: found[id] for id in (*STATISTICAL, "C6", "C28", "C38") if found[id] != "undecided"} == {}


def test_without_data_no_claim_has_a_verdict_but_the_computed_one() -> None:
    found = {finding.claim.id: finding for finding in judge(PAPER, Results("paper", Path("unused"), [], series_table({})))}
    assert {id for id, finding in found.items() if finding.verdict != "no data"} == {"C37"}
    assert all(finding.reason for finding in found.values() if finding.verdict == "no data")


def test_the_claims_are_all_there_and_name_axes_and_roles_that_the_sweeps_have() -> None:
    ids = {claim.id for claim in PAPER}
    assert {id.rstrip("abcd") for id in ids} == {f"C{i}" for i in range(1, 40)}
    assert {claim.id for claim in PAPER if claim.family == "primary"} == {"C1", "C4", "C5", "C9", "C12"}
    for claim in PAPER:
        for part in claim.parts:
            for _, selector in part.weighted:
                if selector["sweep"] not in available_sweeps():
                    assert selector["sweep"] in ("table4", "table8"), claim.id
                    continue
                axes = load_sweep(selector["sweep"]).axes
                for key, role in selector.items():
                    if key in RESERVED:
                        continue
                    known = {point.role for point in axes[key]}
                    roles = [role] if not role.startswith("{") else list(part.over.roles) if part.over else []
                    assert set(roles) <= known, f"{claim.id}: {key} = {roles}"


def test_the_decomposition_of_the_papers_numbers() -> None:
    gains = decomposition(Samples(collected(as_the_paper_says, "paper", ("table1", "table2"))))
    at_T_max = {gain.effect.split(" (")[0]: gain for gain in gains if gain.T == "T_max"}
    assert list(at_T_max) == ["tying", "rotating", "both", "both beyond the sum"]
    assert [gain.value for gain in at_T_max.values()] == pytest.approx([0.118, 0.049, 0.202, 0.035], abs=0.006)
    assert all(gain.n == 10 and gain.low is not None and gain.low < (gain.value or 0) < (gain.high or 0) for gain in gains)
    assert [gain.stated for gain in at_T_max.values()] == [0.118, 0.049, 0.202, None]


def test_every_group_count_above_the_diagonal_is_what_c28_says() -> None:
    claim = next(claim for claim in PAPER if claim.id == "C28")
    levels = dict.fromkeys(GROUPS, 0.8) | {"diagonal": 0.7}
    (found,) = judge([claim], accuracies(levels))
    assert (found.verdict, len(found.parts)) == ("supported", 5)


def test_a_cell_counts_for_every_sweep_that_plans_it_whichever_had_it_run() -> None:
    of = {"sweep": "ablation_curriculum", "group": "A5", "method": "diagonal", "T": "T_max"}
    results = collected(lambda *about: 0.9 + noise(*about), "mini", ["table1"])
    shared, own = ({"kind": "range", "low": 0.5, "of": of | {"curriculum": role}} for role in ("doubling", "none"))
    assert one(shared, results).verdict == "supported"
    assert (one(own, results).verdict, one(own, results).reason) == (
        "no data",
        "no finished run of ablation_curriculum has group=A5 method=diagonal T=T_max curriculum=none",
    )
