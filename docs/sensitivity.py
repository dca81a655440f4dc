"""Numbers for the blocks that compare methods: the diagonal and G = 2 under every ablation, and the spread of Table 1's seeds.

Everything is last-token accuracy at T_max, of the ablations on A5. docs/fill.py puts it into the pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from looprepro.analysis.claim_samples import Samples, Selected
from looprepro.analysis.evidence import Evidence, independent
from looprepro.analysis.statistics import mean, standard_deviation, summarise
from looprepro.planning import available_sweeps, load_sweep
from looprepro.report.numbers import DASH, difference, measured, number

PAIR = ("diagonal", "G=2")
"""The methods whose order is asked for."""
SETTING = ("setting", "diagonal", "G = 2", "G = 2 less diagonal", "seeds", "change of that difference")
SPREAD = (
    "group",
    "method",
    "mean",
    "median",
    "standard deviation",
    "lowest",
    "highest",
    "less diagonal (95% interval)",
    "seeds",
)


@dataclass(frozen=True)
class Ablation:
    """One table of docs/sensitivity.md; the columns are SETTING."""

    title: str
    sweep: str
    rows: Sequence[Sequence[str]]
    sentence: str


def ablations(samples: Samples) -> Iterator[Ablation]:
    """Every ablation of the scale, also those of which nothing has been run."""
    for sweep in map(load_sweep, available_sweeps()):
        if not sweep.name.startswith("ablation_") or samples.results.scale not in sweep.scales:
            continue
        axis = sweep.layout.rows[0]
        points = sweep.axes[axis]
        pairs = [[accuracy(samples, sweep.name, method, {axis: point.role}) for method in PAIR] for point in points]
        rows = [setting_row(point.label or point.role, pair, pairs[0]) for point, pair in zip(points, pairs, strict=True)]
        yield Ablation(sweep.title, sweep.name, rows, order_sentence(pairs))


def table1_samples(samples: Samples) -> Iterator[tuple[str, str, Selected, Selected]]:
    """(Group, method, its sample, the diagonal's) for every row of Table 1."""
    axes = load_sweep("table1").axes
    for group in axes["group"]:
        found = {point.role: accuracy(samples, "table1", point.role, {"group": group.role}) for point in axes["method"]}
        yield from ((group.role, method, one, found["diagonal"]) for method, one in found.items())


def spread_rows(samples: Samples) -> list[Sequence[str]]:
    """Per group and method of Table 1 that has any seed, under SPREAD."""
    rows: list[Sequence[str]] = []
    for group, method, one, diagonal in table1_samples(samples):
        if values := sorted(one.values.values()):
            five = (mean(values), median(values), standard_deviation(values), values[0], values[-1])
            less = DASH if method == "diagonal" else weighted([(one, 1.0), (diagonal, -1.0)])
            rows.append((group, method.replace("=", " = "), *(number(value, 3) for value in five), less, size(one)))
    return rows


def in_words(samples: Samples) -> Iterator[str]:
    """One line per group of Table 1: which methods differ from the diagonal, what could have been told, and where they lie;
    of the methods whose seeds have all run."""
    found: dict[str, list[tuple[str, Selected, Selected]]] = {}
    for group, method, one, diagonal in table1_samples(samples):
        if method != "diagonal" and one.values and not one.withheld and not diagonal.withheld:
            found.setdefault(group, []).append((method.replace("=", " = "), one, diagonal))
    for group, methods in found.items():
        widths: list[tuple[float, str]] = []
        apart = []
        for method, one, diagonal in methods:
            if evidence := _evidence([(one, 1.0), (diagonal, -1.0)]):
                low, high = evidence.interval
                widths.append(((high - low) / 2, method))
                if low > 0 or high < 0:
                    apart.append(f"{method} ({difference(evidence.effect, 3)})")
        if not widths:
            continue
        (narrow, sharpest), *_, (wide, bluntest) = [min(widths), max(widths)]
        told = f"these differ from the diagonal: {', '.join(apart)}" if apart else "no method is told from the diagonal"
        yield (
            f"**{group}** ({', '.join(method for method, *_ in methods)}): {told}. The 95% intervals of the differences reach "
            f"±{number(narrow, 2)} ({sharpest}) to ±{number(wide, 2)} ({bluntest}), and less than that is not told from none. "
            f"{_levels('Means', mean, methods)}; {_levels('medians', median, methods)}."
        )


def _levels(name: str, of: Callable[[list[float]], float], methods: Sequence[tuple[str, Selected, Selected]]) -> str:
    """``Means: diagonal 0.937, the others 0.836 (G = 8) to 0.934 (d/2)``."""
    others = sorted((of(list(one.values.values())), method) for method, one, _ in methods)
    ends = [f"{number(value, 3)} ({method})" for value, method in (others[0], others[-1])]
    own = of(list(methods[0][2].values.values()))
    return f"{name}: diagonal {number(own, 3)}, the others {' to '.join(dict.fromkeys(ends))}"


def accuracy(samples: Samples, sweep: str, method: str, roles: Mapping[str, str]) -> Selected:
    """The sample of a method under one setting; Table 1's where that is the same cell, or the sweep lacks the method, to which
    the setting then means nothing."""
    published, own = (_placed(samples, name, method, axes) for name, axes in (("table1", {}), (sweep, roles)))
    return (published if not own[0] or own[0] <= published[0] else own)[1]


def _placed(samples: Samples, sweep: str, method: str, roles: Mapping[str, str]) -> tuple[set[str], Selected]:
    """Ids of the cells that a sweep wants at one place, and what was collected there."""
    axes = {"group": "A5", "method": method, **roles}
    return {cell.id for cell, _ in samples.places(sweep, axes)}, samples.select({"sweep": sweep, "T": "T_max", **axes})


def size(sample: Selected) -> str:
    """``10``, ``4/5`` where seeds are missing, ``4/5, 1 diverged``."""
    count = f"{len(sample.values)}" if len(sample.values) == sample.planned else f"{len(sample.values)}/{sample.planned}"
    return count + (f", {sample.diverged} diverged" if sample.diverged else "")


def setting_row(label: str, pair: Sequence[Selected], first: Sequence[Selected]) -> tuple[str, ...]:
    """One line: both methods, their difference, and by how much that is another than the first line's."""
    means = [measured(summary.mean, summary.se, 3) for summary in (summarise(list(one.values.values())) for one in pair)]
    sizes = " and ".join(dict.fromkeys(size(one) for one in pair))
    change = DASH
    if pair is not first:  # a diagonal that both lines share drops out
        terms = [(pair[1], 1.0), (first[1], -1.0)]
        change = weighted(terms if pair[0] == first[0] else [*terms, (pair[0], -1.0), (first[0], 1.0)])
    return (label, *means, weighted([(pair[1], 1.0), (pair[0], -1.0)]), sizes, change)


def weighted(terms: Sequence[tuple[Selected, float]]) -> str:
    """``-0.043 (-0.146 to +0.060)``: a weighted sum of means with Welch's 95% interval."""
    if not all(one.values for one, _ in terms):
        return DASH
    evidence = _evidence(terms)
    if evidence is None:
        return difference(math.fsum(weight * mean(list(one.values.values())) for one, weight in terms), 3)
    low, high = (difference(end, 3) for end in evidence.interval)
    return f"{difference(evidence.effect, 3)} ({low} to {high})"


def order_sentence(pairs: Sequence[Sequence[Selected]]) -> str:
    """Who is ahead under which settings, as far as the intervals of the differences exclude zero."""
    if any(one.withheld for pair in pairs for one in pair):
        return "Not all of its cells have been run, so nothing is said of the order."
    signs = []
    for diagonal, conformal in pairs:
        evidence = _evidence([(conformal, 1.0), (diagonal, -1.0)])
        low, high = evidence.interval if evidence else (-1.0, 1.0)
        signs.append((low > 0) - (high < 0))
    if {1, -1} <= set(signs):
        return "**The order changes.**"
    if 0 not in signs:
        return "The order does not change."
    return f"No change of order is shown: {signs.count(0)} of {len(signs)} differences are undecided."


def _evidence(terms: Sequence[tuple[Selected, float]]) -> Evidence | None:
    """None where a sample has fewer than two seeds, or none has any spread."""
    return independent([one.values for one, _ in terms], [weight for _, weight in terms])
