"""The one place that turns a number into text: mean ± SE with sensible digits, and what a sample lacks."""

from __future__ import annotations

from looprepro.analysis.table import Entry

DASH = "—"
"""Stands where no number exists."""


def number(value: float | None, decimals: int) -> str:
    """``value`` with fixed decimals; scientific with two digits where those would show nothing but zeros.

    >>> number(0.8941, 3), number(-0.00001, 3), number(0.0, 3), number(None, 3)
    ('0.894', '-1.0e-05', '0.000', '—')
    """
    if value is None:
        return DASH
    if value != 0 and abs(value) < 0.5 * 10**-decimals:
        return f"{value:.1e}"
    return f"{value:.{decimals}f}"


def measured(mean: float | None, se: float | None, decimals: int) -> str:
    """``0.894 ± 0.012``; without ± where there is no SE. Both ends have the same decimals.

    An error too small for these decimals prints as a bound (``<0.001``): an SE of zero would claim certainty.
    """
    if mean is None or se is None:
        return number(mean, decimals)
    if se != 0 and se < 0.5 * 10**-decimals and abs(mean) >= 0.5 * 10**-decimals:
        return f"{number(mean, decimals)} ± <{10**-decimals:.{decimals}f}"
    return f"{number(mean, decimals)} ± {number(se, decimals)}"


def difference(value: float, decimals: int) -> str:
    """A difference, always with its sign."""
    text = number(value, decimals)
    return text if text.startswith("-") else f"+{text}"


def sample(entry: Entry, common_n: int | None) -> str:
    """What must be said of the sample: ``n=4/5, 1 diverged``, ``0/5 run``; empty where it is complete and of the usual size."""
    dropped = f"{entry.diverged} diverged, dropped" if entry.diverged and entry.complete else ""
    if entry.complete:
        usual = entry.n == common_n or not entry.wanted
        size = "" if usual and not dropped else f"n={entry.n}"
        return ", ".join(part for part in (size, dropped) if part)
    if entry.missing == entry.wanted:
        return f"0/{entry.wanted} run"
    gaps = [
        f"{count} {name}"
        for name, count in (
            ("missing", entry.missing),
            ("failed", entry.failed),
            ("diverged", entry.diverged),
            ("repeated", entry.repeated),
        )
        if count
    ]
    return ", ".join([f"n={entry.n}/{entry.wanted}", *gaps])
