"""Claims as text and as a document: the verdict of each, what decided it, and the decomposition of C11."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from looprepro.analysis.claims import Finding
from looprepro.analysis.decomposition import Gain
from looprepro.analysis.judged import Judged
from looprepro.report.numbers import DASH, difference, number

DECIMALS = 3


def document(scale: str, note: str, findings: Sequence[Finding], gains: Sequence[Gain]) -> dict[str, Any]:
    """results/<scale>/claims.json: everything that was judged, part by part."""
    return {
        "schema": 1,
        "scale": scale,
        "note": note,
        "verdicts": dict(sorted(Counter(found.verdict for found in findings).items())),
        "claims": [
            {
                "id": found.claim.id,
                "says": found.claim.says,
                "place": found.claim.place,
                "note": found.claim.remark,
                "family": found.claim.family,
                "verdict": found.verdict,
                "reason": found.reason,
                "decided": decided(found),
                "p": found.p,
                "p_adjusted": found.p_adjusted,
                "deciding": asdict(found.deciding) if found.deciding else None,
                "parts": [asdict(part) for part in found.parts],
            }
            for found in findings
        ],
        "decomposition": [asdict(gain) for gain in gains],
    }


def text(scale: str, note: str, findings: Sequence[Finding], gains: Sequence[Gain], title: str = "Rotate the Loop") -> str:
    """For the eye: one block per claim of the paper called ``title``, then the decomposition."""
    counts = Counter(found.verdict for found in findings)
    lines = [
        f"Claims of {title}, judged at scale {scale}: {', '.join(f'{n} {v}' for v, n in sorted(counts.items()))}",
        *([f"Scale {scale}: {note}"] if note else []),
        "p is corrected within a family (Holm); an interval is the 95% interval of the deciding part alone.",
        "",
    ]
    for found in findings:
        lines.append(f"{found.claim.id:<5} {found.verdict.upper():<13} {found.claim.says}  [{found.claim.place}]")
        lines.append(f"      {decided(found)}")
        if found.claim.remark:
            lines.append(f"      note: {found.claim.remark}")
    return "\n".join([*lines, "", *gain_lines(scale, gains), *([""] if gains else [])])


def decided(found: Finding) -> str:
    """What decided a verdict, in one line."""
    if found.verdict == "no data":
        return found.reason
    assert found.deciding is not None
    shown = "first without a verdict" if found.deciding.withheld else "weakest"
    parts = f"{len(found.parts)} parts, {shown}: " if len(found.parts) > 1 and found.verdict != "contradicted" else ""
    p = "" if found.p_adjusted is None or found.deciding.statistic in ("largest value", "sum", "computed") else p_text(found)
    agree = f"; {found.reason}" if found.verdict in ("undecided", "single run") else ""
    return f"{parts}{found.deciding.what}: {effect(found.deciding)}{p}{agree}"


def p_text(found: Finding) -> str:
    """Corrected p-value."""
    p = found.p_adjusted
    return "" if p is None else ", p < 0.0001" if p < 0.0001 else f", p = {p:.2g}"


def effect(part: Judged) -> str:
    """``+0.150 [+0.120, +0.180], n = 10 (Welch)``."""
    if part.effect is None:
        return f"n = {part.n}"
    shown = signed if part.kind in ("greater", "disjoint", "equal", "contrast", "winner") else plain
    interval = "" if part.low is None or part.high is None else f" [{shown(part.low)}, {shown(part.high)}]"
    statistic = f" ({part.statistic})" if part.statistic else ""
    lost = f", {part.diverged} diverged" if part.diverged else ""
    n = f", n = {part.n}" if part.n else ""
    return f"{shown(part.effect)}{interval}{n}{lost}{statistic}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return difference(value, DECIMALS)


def plain(value: float) -> str:
    """A value that is no difference."""
    return number(value, DECIMALS)


def gain_lines(scale: str, gains: Sequence[Gain]) -> list[str]:
    """The decomposition as aligned text."""
    if not gains:
        return []
    lines = [f"Decomposition of the gain over the diagonal on A5 (C11, C29), scale {scale}:"]
    for gain in gains:
        interval = "" if gain.low is None or gain.high is None else f" [{signed(gain.low)}, {signed(gain.high)}]"
        stated = "" if gain.stated is None else f"   paper, scale paper: {number(gain.stated, DECIMALS)}"
        value = DASH if gain.value is None else signed(gain.value)
        lines.append(f"  {gain.T:<9} {gain.effect:<33} {value}{interval}, n = {gain.n}{stated}")
    return lines
