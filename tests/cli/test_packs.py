"""``--pack seeds`` from the plan to the rows: the same cells, trained together, and every row says with whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

Looprepro = Callable[..., Any]


def test_a_sweep_in_packs_from_plan_to_rows(looprepro: Looprepro, here: Path) -> None:
    planned = looprepro("plan", "./tiny.yaml", "--pack", "seeds")
    assert "packs: 2 of 2 seeds" in planned.stdout
    assert looprepro("sweep", "./tiny.yaml", "--pack", "seeds").returncode == 0
    document = json.loads(looprepro("plan", "./tiny.yaml", "--json").stdout)
    assert (document["counts"]["done"], document["packs"]) == (4, [])  # packing changes no identity
    assert looprepro("collect").returncode == 0
    rows = parquet.read_table(here / "results" / "smoke" / "results.parquet").to_pylist()
    packs = {(row["axis_method"], row["pack"]) for row in rows}
    assert {method for method, _ in packs} == {"diagonal", "G=2"}
    assert len(packs) == 2
    assert all(pack.startswith("2-") for _, pack in packs)


def test_an_unknown_way_of_packing_is_refused(looprepro: Looprepro) -> None:
    for command in ("plan", "sweep"):
        done = looprepro(command, "./tiny.yaml", "--pack", "all")
        assert (done.returncode, done.stdout) == (2, "")
        assert "unknown pack 'all'. Use seeds or none" in done.stderr
