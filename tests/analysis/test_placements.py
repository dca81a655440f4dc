"""What was asked for, by place: asked again with another cell, the earlier cell is wanted no more."""

from __future__ import annotations

from typing import Any

from looprepro.analysis.placements import placements, request_document
from looprepro.planning import expand, load_sweep


def asked(*cells: tuple[str, int], sweep: str = "mine", overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    places = [
        {"id": id, "seed": seed, "axes": {"method": "swirl"}, "evaluations": [{"id": "T4", "role": "T_max", "T": 4}]}
        for id, seed in cells
    ]
    return {"sweep": sweep, "scale": "smoke", "overrides": list(overrides), "cells": places}


def test_a_cell_whose_place_another_took_is_wanted_no_more() -> None:
    assert set(placements([asked(("old-s0", 0), ("old-s1", 1)), asked(("new-s0", 0))])) == {"new-s0", "old-s1"}
    assert set(placements([asked(("old-s0", 0)), asked(("new-s0", 0)), asked(("old-s0", 0))])) == {"old-s0"}, "changed back"


def test_other_sweeps_and_overrides_are_other_places() -> None:
    requests = [asked(("a-s0", 0)), asked(("b-s0", 0), overrides=("training.lr=1",)), asked(("c-s0", 0), sweep="other")]
    assert set(placements(requests)) == {"a-s0", "b-s0", "c-s0"}


def test_an_expansion_takes_nobody_else_s_place() -> None:
    expansion = expand(load_sweep("table1"), "mini")
    assert set(placements([request_document(expansion), request_document(expansion)])) == {cell.id for cell in expansion.cells}
