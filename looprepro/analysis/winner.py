"""Whether the same role wins in every setting: the parts of kind ``winner``.

For: some role wins everywhere, which is shown by its weakest win; the best such role was chosen among all, so its p-value
counts as often as there are roles. Against: some role wins in one setting and another beats it in another setting; counted
as often as there are such choices. Means are compared by Welch's test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from looprepro.analysis.claim_samples import Samples, Selected
from looprepro.analysis.evidence import independent
from looprepro.analysis.judged import Judged
from looprepro.analysis.statistics import mean
from looprepro.planning.claims import Over, Part

Means = Mapping[tuple[str, str], Selected]
"""(Setting, role) -> sample."""


def judge_winner(part: Part, samples: Samples) -> Judged:
    """The roles that compete are those that the sweep plans in every setting."""
    assert part.over is not None
    assert part.between is not None
    sweep = part.of["sweep"]
    if isinstance(there := samples.expansion(sweep), str):
        return Judged(part.kind, part.kind, 0, lacking=there)
    settings = part.over.roles or tuple(samples.roles(sweep, part.over.axis))
    planned = [samples.roles(sweep, part.between.axis, {part.over.axis: setting}) for setting in settings]
    roles = [role for role in _candidates(part.between, planned) if all(role in found for found in planned)]
    what = f"the same {part.between.axis} of {', '.join(roles)} wins at {part.over.axis} = {' and '.join(settings)}"
    if len(roles) < 2 or len(settings) < 2:
        return Judged(part.kind, part.kind, 0, lacking=f"{sweep} runs fewer than two of {part.between.axis} in every setting")
    found = {
        (setting, role): samples.select(part.of | {part.over.axis: setting, part.between.axis: role})
        for setting in settings
        for role in roles
    }
    diverged = sum(sample.diverged for sample in found.values())
    lacking = next((sample.lacking for sample in found.values() if not sample.values), "")
    if lacking:
        return Judged(part.kind, what, 0, lacking=lacking, diverged=diverged)
    n = min(len(sample.values) for sample in found.values())
    withheld = next((sample.withheld for sample in found.values() if sample.withheld), "")
    sign = -1.0 if part.lowest else 1.0
    best = {}
    for setting in settings:
        means = {role: sign * _mean(found[setting, role]) for role in roles}
        best[setting] = max(roles, key=means.__getitem__)
    agrees = len(set(best.values())) == 1
    gap = min(_gap(found, setting, best[settings[0]], roles, sign) for setting in settings)
    said = what if agrees else f"{what} ({', '.join(f'{best[setting]} at {setting}' for setting in settings)})"
    p = _p_values(found, settings, roles, sign) if n > 1 else None
    if p is None:
        return Judged(part.kind, said, n, gap, agrees=agrees, withheld=withheld, diverged=diverged)
    return Judged(part.kind, said, n, gap, None, None, "Welch", *p, agrees, withheld=withheld, diverged=diverged)


def _candidates(between: Over, planned: Sequence[Sequence[str]]) -> Sequence[str]:
    return [role for role in (between.roles or planned[0]) if role not in between.without] if planned else []


def _mean(sample: Selected) -> float:
    return mean(list(sample.values.values()))


def _gap(found: Means, setting: str, winner: str, roles: Sequence[str], sign: float) -> float:
    """How far ``winner`` is ahead of the next best; negative where it is behind."""
    return min(sign * (_mean(found[setting, winner]) - _mean(found[setting, role])) for role in roles if role != winner)


def _p_values(found: Means, settings: Sequence[str], roles: Sequence[str], sign: float) -> tuple[float, float] | None:
    """(For, against), one-sided; None where two samples have no spread at all."""
    better: dict[tuple[str, str, str], float] = {}
    for setting in settings:
        for first, second in permutations(roles, 2):
            evidence = independent([found[setting, first].values, found[setting, second].values], [sign, -sign])
            if evidence is None:
                return None
            better[setting, first, second] = evidence.p_above(0.0)

    def wins(setting: str, role: str) -> float:
        return max(better[setting, role, other] for other in roles if other != role)

    everywhere = min(max(wins(setting, role) for setting in settings) for role in roles)
    upset = [
        max(wins(here, role), better[there, other, role])
        for here, there in permutations(settings, 2)
        for role, other in permutations(roles, 2)
    ]
    return min(1.0, len(roles) * everywhere), min(1.0, len(upset) * min(upset))
