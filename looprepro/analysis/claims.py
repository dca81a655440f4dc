"""Judge a paper's claims on collected rows: a verdict with the statistic, n, effect and interval that decided.

A claim is a conjunction of parts (or "at least k of them"). Each part gives two one-sided p-values, for and against; the
claim combines them (the largest for, the smallest against times the number of parts; partial conjunctions likewise), and
Holm's correction runs over the claims of one family. 5% in all, both sides together. Data that are missing never support, and
no test decides before all planned seeds have run: a study that is filled in parts would stop where its verdict is liked. A
bound is no inference: it says of the runs made that none is above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from looprepro.analysis.claim_samples import Samples, Selected
from looprepro.analysis.evidence import Evidence, Sample, common_seeds, independent, paired
from looprepro.analysis.judged import Judged
from looprepro.analysis.results import Results
from looprepro.analysis.statistics import holm, mean, t_interval
from looprepro.analysis.winner import judge_winner
from looprepro.planning.claims import RESERVED, Claim, Part, Selector

Verdict = Literal["supported", "contradicted", "undecided", "single run", "no data"]
LEVEL = 0.05


@dataclass(frozen=True)
class Finding:
    """A claim with its verdict and the part that decided it."""

    claim: Claim
    verdict: Verdict
    reason: str
    parts: tuple[Judged, ...]
    deciding: Judged | None
    p: float | None = None
    """Two-sided, before Holm's correction."""
    p_adjusted: float | None = None


def judge(claims: Sequence[Claim], results: Results) -> list[Finding]:
    """A finding per claim, in their order."""
    samples = Samples(results)
    findings = [_combine(claim, tuple(_parts(claim, samples))) for claim in claims]
    adjusted = list(findings)
    for family in dict.fromkeys(claim.family for claim in claims):
        members = [i for i, found in enumerate(findings) if found.claim.family == family and _in_question(found.claim, results)]
        # A claim without a test counts with p = 1: missing data must not make its family's other claims easier to support.
        p_values = [1.0 if (p := findings[i].p) is None else p for i in members]
        for i, p in zip(members, holm(p_values), strict=True):
            if findings[i].p is not None:
                adjusted[i] = _decide(findings[i], p)
    return adjusted


def _in_question(claim: Claim, results: Results) -> bool:
    """Whether its parts are about data at this scale, which is known without any. One whose sweep lacks the scale is, too."""
    return not any(part.kind == "elsewhere" or (part.scales and results.scale not in part.scales) for part in claim.parts)


def _parts(claim: Claim, samples: Samples) -> Iterable[Judged]:
    for part in claim.parts:
        if part.scales and samples.results.scale not in part.scales:
            yield Judged(part.kind, part.kind, 0, lacking=f"this is about scale {', '.join(part.scales)} only")
        elif part.kind == "winner":
            yield judge_winner(part, samples)
        elif part.over is None:
            yield _judge(part, samples, {})
        else:
            roles = part.over.roles or tuple(samples.roles(_sweep(part), part.over.axis, _fixed(part)))
            roles = tuple(role for role in roles if role not in part.over.without)
            steps = [{"{role}": role, "{next}": after} for role, after in zip_longest(roles, roles[1:], fillvalue="")]
            if any("{next}" in selector.values() for _, selector in part.weighted):
                steps = steps[:-1]
            if not steps:
                there = samples.expansion(_sweep(part))
                none = there if isinstance(there, str) else f"{_sweep(part)} has no roles on {part.over.axis} here"
                yield Judged(part.kind, part.kind, 0, lacking=none)
            for names in steps:
                yield _judge(part, samples, names)


def _fixed(part: Part) -> Selector:
    """The axes that all samples of a part share, each with its one role."""
    return {key: role for key, role in part.of.items() if key not in RESERVED and not role.startswith("{")}


def _sweep(part: Part) -> str:
    return part.weighted[0][1]["sweep"]


def _judge(part: Part, samples: Samples, names: Selector) -> Judged:
    """``names``: what "{role}" and "{next}" stand for."""
    match part.kind:
        case "poisson_tail":
            return _poisson_tail(part)
        case "total":
            return _total(part, samples)
        case "elsewhere":
            return Judged(part.kind, part.where or "", 0, lacking=part.where or "")
    weights = [weight for weight, _ in part.weighted]
    selectors = [{key: names.get(value, value) for key, value in of.items()} for _, of in part.weighted]
    selected = [samples.select(selector) for selector in selectors]
    what = _describe(part, weights, selectors)
    diverged = sum(sample.diverged for sample in selected)
    lacking = next((sample.lacking for sample in selected if not sample.values), "")
    if lacking:
        return Judged(part.kind, what, 0, lacking=lacking, diverged=diverged)
    judged = _bound(part, what, selected[0]) if part.kind == "bound" else _tested(part, what, weights, selected)
    withheld = next((sample.withheld for sample in selected if sample.withheld), "")
    return replace(judged, withheld=withheld, diverged=diverged)


def _tested(part: Part, what: str, weights: Sequence[float], selected: Sequence[Selected]) -> Judged:
    values = [sample.values for sample in selected]
    if part.paired:
        common = common_seeds(values)
        if not common:
            return Judged(part.kind, what, 0, lacking=f"no seed has both sides of: {what}")
        values = [{seed: sample[seed] for seed in common} for sample in values]
    n = min(len(sample) for sample in values)
    effect = math.fsum(weight * mean(list(s.values())) for s, weight in zip(values, weights, strict=True))
    if n < 2:
        return Judged(part.kind, what, n, effect, agrees=_holds(part, effect))
    evidence = (paired if part.paired else independent)(values, weights)
    if evidence is None:  # no spread at all: no estimate of the error
        return Judged(part.kind, what, n, effect, agrees=_holds(part, effect))
    p_for, p_against = _p_values(part, evidence)
    if part.kind == "disjoint" and not _disjoint(*values):
        p_for = 1.0
    low, high = evidence.interval
    return Judged(part.kind, what, n, effect, low, high, evidence.statistic, p_for, p_against, _holds(part, effect))


def _holds(part: Part, effect: float) -> bool:
    """Whether the estimate itself is on the claim's side."""
    low, high = _limits(part)
    return low < effect < high


def _limits(part: Part) -> tuple[float, float]:
    """The claim is that the effect lies between these."""
    if part.kind == "equal":
        assert part.margin is not None
        return -part.margin, part.margin
    if part.kind == "range":
        return -math.inf if part.low is None else part.low, math.inf if part.high is None else part.high
    return 0.0, math.inf


def _p_values(part: Part, evidence: Evidence) -> tuple[float, float]:
    """For: every end that there is must be ruled out (two one-sided tests). Against: either exceeded, so with two ends twice
    the smaller. That intervals touch is nothing that a test could show."""
    low, high = _limits(part)
    inside, outside = [], []
    if not math.isinf(low):
        inside.append(evidence.p_above(low))
        outside.append(1.0 if part.kind == "disjoint" else evidence.p_below(low))
    if not math.isinf(high):
        inside.append(evidence.p_below(high))
        outside.append(evidence.p_above(high))
    return max(inside), min(1.0, len(outside) * min(outside))


def _disjoint(a: Sample, b: Sample) -> bool:
    """Whether the 95% intervals of the two means have no point in common."""
    first, second = t_interval(list(a.values())), t_interval(list(b.values()))
    return first is not None and second is not None and (first[0] > second[1] or second[0] > first[1])


def _bound(part: Part, what: str, sample: Selected) -> Judged:
    """Every value is at most the limit. No test: one value above it refutes."""
    assert part.limit is not None
    values = list(sample.values.values())
    holds = max(values) <= part.limit
    judged = Judged(part.kind, what, len(values), max(values), statistic="largest value", agrees=holds)
    if not holds:
        return replace(judged, p_for=1.0, p_against=0.0, broken=True)
    return judged if len(values) < 2 else replace(judged, p_for=0.0, p_against=1.0)


def _total(part: Part, samples: Samples) -> Judged:
    """A sum over all cells of some sweeps lies in a range; without all of them there is no sum."""
    assert part.low is not None
    assert part.high is not None
    hours, found, wanted = samples.device_hours(part.sweeps, part.device or "")
    what = f"{part.low:g} < device hours of {', '.join(part.sweeps)} < {part.high:g}"
    if not wanted or found < wanted:
        return Judged(
            part.kind, what, found, lacking=f"{found} of {wanted} cells are finished on {part.device or 'any device'}"
        )
    holds = part.low < hours < part.high
    return Judged(part.kind, what, found, hours, None, None, "sum", float(not holds), float(holds), holds)


def _poisson_tail(part: Part) -> Judged:
    """P(N >= reaches) under a Poisson of this mean is at most the limit: arithmetic, no data."""
    assert part.mean is not None
    assert part.reaches is not None
    assert part.limit is not None
    below = math.fsum(math.exp(-part.mean) * part.mean**k / math.factorial(k) for k in range(part.reaches))
    share, holds = 1.0 - below, 1.0 - below <= part.limit
    what = f"share that reaches {part.reaches} at mean {part.mean:g} <= {part.limit:g}"
    return Judged(part.kind, what, 0, share, None, None, "computed", float(not holds), float(holds), holds)


def _combine(claim: Claim, parts: tuple[Judged, ...]) -> Finding:
    broken = next((part for part in parts if part.broken), None)
    if broken and claim.need is None:
        return Finding(claim, "undecided", "", parts, broken, 0.0)
    lacking = [part for part in parts if part.lacking]
    if lacking:
        return Finding(claim, "no data", lacking[0].lacking, parts, None)
    need = claim.need or len(parts)
    untested = [part for part in parts if part.p_for is None]
    if untested:
        single = any(part.n < 2 for part in untested)
        agree = sum(part.agrees is True for part in parts)
        reason = f"the sign agrees in {agree} of {len(parts)} parts" + (
            "" if single else "; no spread between seeds, so no test"
        )
        return Finding(claim, "single run" if single else "undecided", reason, parts, untested[0])
    if withheld := next((part for part in parts if part.withheld), None):
        return Finding(claim, "undecided", withheld.withheld, parts, withheld)
    count = len(parts)
    by_for = sorted(parts, key=lambda part: part.p_for or 0.0)
    by_against = sorted(parts, key=lambda part: part.p_against or 0.0)
    p_for = min(1.0, (count - need + 1) * (by_for[need - 1].p_for or 0.0))
    p_against = min(1.0, need * (by_against[count - need].p_against or 0.0))
    deciding = by_for[need - 1] if p_for <= p_against else by_against[count - need]
    return Finding(claim, "undecided", "", parts, deciding, min(1.0, 2 * min(p_for, p_against)))


def _decide(found: Finding, adjusted: float) -> Finding:
    """The verdict, after Holm's correction."""
    deciding = found.deciding
    assert deciding is not None
    assert deciding.p_for is not None
    assert deciding.p_against is not None
    if adjusted >= LEVEL:
        agree = sum(part.agrees is True for part in found.parts)
        reason = f"the estimate agrees in {agree} of {len(found.parts)} parts, not significantly"
        weakest = max(found.parts, key=lambda part: part.p_for or 0.0)
        return replace(found, p_adjusted=adjusted, reason=reason, deciding=weakest)
    supported = deciding.p_for <= deciding.p_against
    return replace(found, p_adjusted=adjusted, verdict="supported" if supported else "contradicted", reason=deciding.what)


def _describe(part: Part, weights: Sequence[float], selectors: Sequence[Selector]) -> str:
    """The comparison in one line: what differs between the samples, then what they share."""
    shared = {key: value for key, value in selectors[0].items() if all(other.get(key) == value for other in selectors)}
    names = [" ".join(value for key, value in of.items() if key not in shared) or "it" for of in selectors]
    about = " ".join(value for key, value in shared.items() if not (key == "sweep" and len(shared) == 1))
    match part.kind:
        case "greater":
            text = f"{names[0]} > {names[1]}"
        case "disjoint":
            text = f"intervals of {names[0]} and {names[1]} are apart"
        case "equal":
            text = f"|{names[0]} - {names[1]}| < {part.margin:g}"
        case "range":
            text = "value" if part.low is None else f"{part.low:g} < value"
            text = text if part.high is None else f"{text} < {part.high:g}"
        case "bound":
            text = f"value <= {part.limit:g}"
        case _:
            text = " ".join(f"{weight:+g} {name}" for weight, name in zip(weights, names, strict=True)) + " > 0"
    return f"{text} ({about})" if about else text
