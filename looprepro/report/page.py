"""One self-contained HTML page per scale: claims, tables, figures, cost, provenance, assumptions. No network, no script.

Equal results give equal bytes: the page holds no date.
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from looprepro.analysis.claims import Finding
from looprepro.analysis.decomposition import Gain
from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted
from looprepro.analysis.summary import costs, origins
from looprepro.analysis.table import Table
from looprepro.files.atomic import write_text
from looprepro.report.claims import decided, signed
from looprepro.report.grid import Grid, grid
from looprepro.report.markdown import to_html
from looprepro.report.numbers import DASH, number
from looprepro.report.plots import Drawing, draw_all

TITLE = "Rotate the Loop and Fixed-Point Reasoners, reproduced"
PIXELS = 1.6
"""Pixels of a figure's file per CSS pixel."""


def write_page(
    results: Results,
    note: str,
    tables: Sequence[Table],
    findings: Sequence[Finding],
    gains: Sequence[Gain],
    wanted: Mapping[str, Wanted],
    assumptions: str,
) -> Path:
    """Render into results/<scale>/report.html and return its path. Draws the figures anew.

    ``wanted``: sweep -> its cells and evaluations of today. ``assumptions``: markdown.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    drawn, undrawn = draw_all(results, wanted, {table.name: table.metric for table in tables})
    text = environment.get_template("page.html.j2").render(
        title=TITLE,
        scale=results.scale,
        note=note,
        verdicts=dict(sorted(Counter(found.verdict for found in findings).items())),
        claims=[_claim(found) for found in findings],
        gains=_gains(gains),
        budgets=list(dict.fromkeys(gain.T for gain in gains)),
        tables=[_table(table.name, grid(table)) for table in tables],
        figures=[_embedded(one) for one in drawn],
        undrawn=undrawn,
        costs=[_cost_line(cost.sweep, cost.statuses, cost.device_hours, cost.unknown) for cost in costs(results.rows)],
        origins=origins(results.rows),
        assumptions=to_html(_without_title(assumptions), level=2) if assumptions else "<p>docs/assumptions.md is not here.</p>",
    )
    path = results.folder / "report.html"
    write_text(path, text)
    return path


def _claim(found: Finding) -> dict[str, str]:
    claim = found.claim
    return {
        "id": claim.id,
        "verdict": found.verdict,
        "says": claim.says,
        "place": claim.place,
        "note": claim.remark,
        "decided": decided(found) + ".",
    }


def _gains(gains: Sequence[Gain]) -> list[dict[str, Any]]:
    rows: dict[str, list[Gain]] = {}
    for gain in gains:
        rows.setdefault(gain.effect, []).append(gain)
    return [
        {
            "effect": effect,
            "stated": number(next((gain.stated for gain in row if gain.stated is not None), None), 3),
            "entries": [
                {
                    "text": DASH if gain.value is None else signed(gain.value),
                    "sample": f"n = {gain.n}"
                    if gain.low is None or gain.high is None
                    else f"[{signed(gain.low)}, {signed(gain.high)}], n = {gain.n}",
                }
                for gain in row
            ],
        }
        for effect, row in rows.items()
    ]


def _table(name: str, layout: Grid) -> dict[str, Any]:
    """Heads with equal neighbours under one parent joined."""
    levels = []
    depth = len(layout.heads[0]) if layout.heads else 0
    for level in range(depth):
        groups = itertools.groupby(layout.heads, key=lambda head: head[: level + 1])
        heads = [{"text": key[-1], "span": len(list(group))} for key, group in groups]
        corner = layout.corner if level == depth - 1 else ("",) * len(layout.corner)
        levels.append({"corner": corner, "heads": heads})
    rows = [{"labels": labels, "texts": texts} for labels, texts in zip(layout.labels, layout.texts, strict=True)]
    return {"name": name, "title": layout.title, "levels": levels, "rows": rows, "notes": layout.notes}


def _embedded(drawing: Drawing) -> dict[str, Any]:
    data = drawing.paths[0].read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of the PNG header
    return {
        "stem": drawing.stem,
        "caption": drawing.caption,
        "data": base64.b64encode(data).decode("ascii"),
        "width": round(width / PIXELS),
        "height": round(height / PIXELS),
    }


def _cost_line(sweep: str, statuses: dict[str, int], hours: float, unknown: int) -> dict[str, str]:
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    return {"sweep": sweep, "cells": counts, "hours": f"{hours:.3g}" + (f" ({unknown} cells unknown)" if unknown else "")}


def _without_title(markdown: str) -> str:
    lines: Iterable[str] = markdown.splitlines()
    return "\n".join(line for line in lines if not line.startswith("# "))
