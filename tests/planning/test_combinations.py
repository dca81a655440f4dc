"""Where axes meet: settings of one combination, empty places, and budgets that each model counts in its own steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from looprepro.analysis.fill import build_table
from looprepro.analysis.table_plan import table_plan
from looprepro.files.errors import ConfigError
from looprepro.planning import Sweep, expand, load_sweep

DOCUMENT: dict[str, Any] = {
    "name": "meeting",
    "title": "t",
    "place": "p",
    "paper": "rotate_the_loop",
    "kind": "table",
    "base": {"model": {"width": 8, "heads": 1}, "training": {"kind": "windows"}},
    "axes": {
        "puzzle": [
            {"role": "small", "set": {"task.kind": "sudoku", "task.side": 4, "task.empty": [1, 8]}},
            {"role": "words", "set": {"task.kind": "state_tracking"}},
        ],
        "model": [
            {"role": "FPRM", "set": {"model.kind": "fixed_point", "evaluation.cap": 100}},
            {"role": "TRM", "set": {"model.kind": "recursive", "model.method": "trm", "evaluation.cap": 16}},
        ],
    },
    "combinations": [
        {"of": {"puzzle": "words", "model": "FPRM"}, "set": {"training.lr": 0.5, "evaluation.cap": 10}},
    ],
    "skip": [{"puzzle": ["words"], "model": ["TRM"]}],
    "evaluations": {"budgets": ["cap/2", "cap"], "items": 8},
    "layout": {"rows": ["model"], "columns": ["puzzle", "T"], "metric": "score"},
    "scales": {"smoke": {"note": "n", "seeds": "0"}},
}


def sweep(folder: Path, **changes: Any) -> Sweep:
    path = folder / "meeting.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT | changes, sort_keys=False))
    return load_sweep(str(path))


def test_a_combination_sets_what_no_axis_can_and_may_be_empty(tmp_path: Path) -> None:
    grid = expand(sweep(tmp_path), "smoke")
    cells = {tuple(cell.placements[0].axes.values()): cell for cell in grid.cells}
    assert set(cells) == {("small", "FPRM"), ("small", "TRM"), ("words", "FPRM")}
    rates = {place: cell.cell.training.lr for place, cell in cells.items()}  # type: ignore[union-attr]
    assert rates == {("small", "FPRM"): 1e-3, ("small", "TRM"): 1e-3, ("words", "FPRM"): 0.5}
    budgets = {place: [(e.role, e.evaluation.T) for e in cell.evaluations] for place, cell in cells.items()}
    assert budgets == {
        ("small", "FPRM"): [("cap/2", 50), ("cap", 100)],
        ("small", "TRM"): [("cap/2", 8), ("cap", 16)],
        ("words", "FPRM"): [("cap/2", 5), ("cap", 10)],
    }
    assert grid.entries == 3


def test_a_scale_that_has_combinations_has_its_own_alone(tmp_path: Path) -> None:
    own = [{"of": {"puzzle": "small"}, "set": {"training.lr": 0.25}}]
    scales = {"smoke": {"note": "n", "seeds": "0", "combinations": own}, "mini": {"note": "n", "seeds": "0"}}
    loaded = sweep(tmp_path, scales=scales)
    assert [cell.cell.training.lr for cell in expand(loaded, "smoke").cells] == [0.25, 0.25, 1e-3]  # type: ignore[union-attr]
    assert len(expand(loaded, "mini").cells) == 3


def test_a_cap_is_no_part_of_an_evaluation(tmp_path: Path) -> None:
    """T = 16 as half of one cap and as the whole of another is one measurement."""
    axes = {**DOCUMENT["axes"], "model": [{"role": "FPRM", "set": {"model.kind": "fixed_point"}}]}
    axes["puzzle"] = [{"role": str(cap), "set": {"task.kind": "sudoku", "evaluation.cap": cap}} for cap in (16, 32)]
    grid = expand(sweep(tmp_path, axes=axes, combinations=[], skip=[]), "smoke")
    assert len(grid.cells) == 1
    assert [e.evaluation.T for e in grid.cells[0].evaluations] == [8, 16, 32]
    halves = [place.evaluations[0] for place in grid.cells[0].placements]
    assert grid.cells[0].placements[0].evaluations[1].id == halves[1].id


def test_a_table_heads_a_budget_by_its_role_where_models_count_differently(tmp_path: Path) -> None:
    table = build_table(table_plan(expand(sweep(tmp_path), "smoke")), [])
    assert [column.labels for column in table.columns] == [
        ("small", "cap/2"),
        ("small", "cap"),
        ("words", "cap/2"),
        ("words", "cap"),
    ]
    empty = table.entries[1][2]
    assert (empty.n, empty.wanted) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"of": {"puzle": "words"}, "set": {"training.lr": 1}}, r"meeting\.yaml:\d+: no axis 'puzle'.*'puzzle'"),
        ({"of": {"puzzle": "word"}, "set": {"training.lr": 1}}, r"axis 'puzzle' has no point 'word' at any scale.*'words'"),
        ({"of": {"puzzle": "words"}, "set": {"training.lrr": 1}}, r"unknown key 'training\.lrr'"),
        ({"of": {"puzzle": "words"}, "sett": {}}, r"unknown key 'combinations\.0\.sett'.*'set'"),
    ],
)
def test_a_misspelt_combination_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(tmp_path, combinations=[changes])


def test_a_budget_by_cap_needs_one(tmp_path: Path) -> None:
    axes = {**DOCUMENT["axes"], "model": [{"role": "FPRM", "set": {"model.kind": "fixed_point"}}]}
    with pytest.raises(ConfigError, match=r"'cap/2' needs evaluation\.cap to be a whole number"):
        sweep(tmp_path, axes=axes, combinations=[], skip=[])
