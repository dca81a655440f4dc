"""``looprepro list``: which sweeps there are, at which scales, and what each needs."""

from __future__ import annotations

import json
from typing import Any

import typer

from looprepro.cli.options import Json, device_hours, readable_sweeps


def list_sweeps(as_json: Json = False) -> None:
    """Sweeps, their scales, and what each needs."""
    from looprepro.planning import available_sweeps, expand, plan

    rows: list[dict[str, Any]] = []
    for sweep in readable_sweeps(available_sweeps()):
        for scale in sweep.scales:
            expansion = expand(sweep, scale)
            rows.append(
                {
                    "sweep": sweep.name,
                    "place": sweep.place,
                    "title": sweep.title,
                    "scale": scale,
                    "cells": len(expansion.cells),
                    "device": expansion.execution.device,
                    "device_hours": plan(expansion.cells, {}).device_hours,
                    "note": sweep.scales[scale].note,
                }
            )
    if as_json:
        typer.echo(json.dumps({"sweeps": rows}, indent=2))
        return
    previous = None
    for row in rows:
        if row["sweep"] != previous:
            typer.echo(f"{row['sweep']}  ({row['place']}) {row['title']}")
            previous = row["sweep"]
        hours = device_hours(row["device_hours"])
        typer.echo(f"  {row['scale']:<6} {row['cells']:>5} cells  {row['device']:<5} about {hours} device hours  {row['note']}")
