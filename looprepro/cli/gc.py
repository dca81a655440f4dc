"""``looprepro gc``: what could be freed under runs/; frees with --yes."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Annotated

import typer

from looprepro.cli.options import RUNS, Json, Runs, say

Yes = Annotated[bool, typer.Option("--yes", help="Free it.")]


def gc(runs: Runs = RUNS, yes: Yes = False, as_json: Json = False) -> None:
    """Old checkpoints and leftovers of killed processes. A finished cell keeps its weights, others their newest two."""
    from looprepro.store import Store

    store = Store(runs)
    garbage = store.garbage()
    if as_json:
        items = [{"path": str(g.path), "bytes": g.bytes, "reason": g.reason, "cell": g.cell_id} for g in garbage]
        typer.echo(json.dumps({"bytes": sum(g.bytes for g in garbage), "items": items}, indent=2))
    else:
        by_reason: dict[str, list[int]] = defaultdict(list)
        for item in garbage:
            by_reason[item.reason].append(item.bytes)
        for reason, sizes in sorted(by_reason.items()):
            typer.echo(f"{sum(sizes) / 1e6:10.1f} MB  {len(sizes):>6}  {reason}")
        typer.echo(f"{sum(g.bytes for g in garbage) / 1e6:10.1f} MB  {len(garbage):>6}  in all")
    if yes:
        say(f"freed {store.free(garbage) / 1e6:.1f} MB")
    elif garbage:
        say("nothing was freed: add --yes")
