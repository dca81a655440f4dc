"""Reading a sweep: a mistake is one line that names file, line, key and the nearest valid key, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from looprepro.files.errors import ConfigError
from looprepro.planning import StatedNumber, available_sweeps, load_sweep, stated_numbers, stated_of, sweeps_folder
from looprepro.planning.catalog import _natural
from looprepro.planning.keys import leaves, nearest_key
from looprepro.planning.schema import parse_seeds

LINES = {  # replacement of one piece of the small sweep -> (line of the mistake, what the message must say)
    "misspelt top key": (("kind: table", "kindd: table"), 5, ["unknown key 'kindd'", "'kind'"]),
    "misspelt layout key": (("metric: last", "metrics: last"), 24, ["'layout.metrics'", "'metric'"]),
    "misspelt point key": (("      label:", "      lable:"), 21, ["'axes.method.2.lable'", "'label'"]),
    "misspelt scale": (("  mini:", "  min:"), 27, ["unknown scale 'min'", "'mini'"]),
    "misspelt scale key": (("    seeds: 0,3,5", "    seed: 0,3,5"), 29, ["'scales.mini.seed'", "'seeds'"]),
    "misspelt execution key": (
        ("execution: {device", "execution: {devise"),
        33,
        ["'scales.mini.execution.devise'", "'device'"],
    ),
    "misspelt key of the cell in base": (
        ("training: {steps: 100,", "training: {learing_rate: 0.1,"),
        12,
        ["unknown key 'training.learing_rate'", "'training.lr'"],
    ),
    "misspelt dotted key in an axis": (
        (
            "{role: G=2, set: {model.injection.method: conformal, model.injection.groups: 2}}",
            "{role: G=2, set: {model.injection.method: conformal, model.injection.grups: 2}}",
        ),
        19,
        ["'model.injection.grups'", "'model.injection.groups'"],
    ),
    "misspelt nested key in a scale": (
        ("set: {model: {width: 32, recurrence: {maximum: 8}}}", "set: {model: {widht: 32}}"),
        30,
        ["'model.widht'", "'model.width'"],
    ),
    "right name in the wrong section": (
        ("set: {model: {width: 32, recurrence: {maximum: 8}}}", "set: {training.width: 32}"),
        30,
        ["'training.width'", "'model.width'"],
    ),
    "value where keys belong": (("training: {steps: 100, batch: 4}", "training: 7"), 12, ["'training' holds keys"]),
    "seed in base": (("training: {steps: 100, batch: 4}", "seed: 7"), 12, ["'seed'", "--seeds"]),
    "impossible value": (("steps: 100", "steps: 0"), 12, ["training.steps = 0", "greater than or equal to 1"]),
    "groups that do not divide the planes": (
        ("model.injection.groups: 2}", "model.injection.groups: 3}"),
        19,
        ["groups 3 does not divide the 8 planes", "1, 2, 4, 8", "method = G=2"],
    ),
    "odd width in one scale": (("width: 32", "width: 33"), 30, ["width 33 is odd", "scale mini"]),
    "symbol that is no whole number": (
        ("model.injection.groups: d/2}", "model.injection.groups: d/3}"),
        22,
        ["model.injection.groups = d/3", "integer"],
    ),
    "budget that is no whole number": (("maximum: 4", "maximum: 3"), 23, ["budget 'T_max/2'", "whole number"]),
    "true where a number belongs": (("steps: 100", "steps: true"), 12, ["training.steps", "true and false are no values here"]),
    "true among budgets": (("budgets: [T_max/2,", "budgets: [true,"), 23, ["true and false are no values here"]),
    "T = 0": (("budgets: [T_max/2,", "budgets: [0,"), 23, ["budget '0'", "at least 1"]),
    "one budget twice": (("budgets: [T_max/2,", "budgets: [4,"), 23, ["'4' and 'T_max' are both T = 4"]),
    "unknown axis in the layout": (("rows: [method]", "rows: [methods]"), 24, ["no axis 'methods'", "'method'"]),
    "unknown axis in a scale": (("axes: {method:", "axes: {metod:"), 31, ["unknown axis 'metod'", "'method'"]),
    "unknown role in a scale": (("[diagonal, d/2]", "[diagnal, d/2]"), 31, ["no point 'diagnal'", "'diagonal'"]),
    "one role twice": (("role: G=2,", "role: diagonal,"), 19, ["role 'diagonal' twice"]),
    "two axes set one key": (
        ("{role: S5, set: {task.group: S5}}", "{role: S5, set: {task.group: S5, model.injection.method: diagonal}}"),
        18,
        ["axes 'group' and 'method' both set 'model.injection.method'"],
    ),
    "seeds that are no list": (("seeds: 0-1", "seeds: 0..1"), 26, ["'scales.smoke.seeds'", "0-4 or 0,2,5"]),
    "missing key": (("place: Table 0\n", ""), 1, ["key 'place' is missing"]),
    "bad YAML": (("budgets: [T_max/2,", "budgets: [[T_max/2,"), 23, ["not valid YAML"]),
    "repeated key": (("place: Table 0", "title: again"), 3, ["'title' stands twice"]),
    "unknown key in a label": (("{model.injection.groups}", "{model.injection.group}"), None, ["'model.injection.group'"]),
    "name that is not the file's": (("name: small", "name: smal"), 1, ["name: small"]),
}


@pytest.mark.parametrize("case", LINES)
def test_a_mistake_names_file_line_key_and_remedy(case: str, write) -> None:
    replacement, line, says = LINES[case]
    path: Path = write(replacement)
    with pytest.raises(ConfigError) as caught:
        load_sweep(path)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert str(path) in message
    for piece in says:
        assert piece in message
    if line is not None and case != "bad YAML":  # a YAML parser may notice a missing bracket lines later
        assert f"{path}:{line}:" in message


def test_the_small_sweep_itself_loads(small) -> None:
    assert small.name == "small"
    assert small.scale("mini").seeds == (0, 3, 5)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("training.learing_rate", "training.lr"),
        ("training.batch_size", "training.batch"),
        ("model.recurence.maximum", "model.recurrence.maximum"),
        ("model.T_max", "model.recurrence.maximum"),
        ("task.lenght", "task.length"),
        ("lr", "training.lr"),
        ("injection.decay", "model.injection.decay"),
    ],
)
def test_the_nearest_key_is_what_was_meant(typed: str, meant: str) -> None:
    assert nearest_key(typed) == meant


def test_every_key_of_a_cell_is_known_and_seed_is_not() -> None:
    keys = set(leaves())
    assert {"task.group", "model.injection.groups", "model.recurrence.mean", "training.betas"} <= keys
    assert "seed" not in keys
    assert "model.injection" not in keys


def test_an_unknown_sweep_names_the_nearest_and_the_list() -> None:
    with pytest.raises(ConfigError, match=r"unknown sweep 'tabel1'\. Did you mean 'table1'\? There are: .*table1"):
        load_sweep("tabel1")


def test_a_path_to_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml does not exist"):
        load_sweep(tmp_path / "nothing.yaml")


def test_a_document_that_is_no_mapping_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "empty.yaml").write_text("")
    for name in ("list", "empty"):
        with pytest.raises(ConfigError, match="mapping"):
            load_sweep(tmp_path / f"{name}.yaml")


def test_an_unknown_scale_names_the_nearest_and_the_list(small) -> None:
    with pytest.raises(ConfigError, match=r"no scale 'paper'.*It has smoke, mini"):
        small.scale("paper")


def test_sweeps_are_listed_in_the_order_of_their_numbers() -> None:
    assert sorted(["table10", "table2", "family"], key=_natural) == ["family", "table2", "table10"]
    assert "table1" in available_sweeps()


def test_an_unknown_paper_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'rotate_the_loop'"):
        stated_numbers("rotate_loop")


def test_a_wrong_reference_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "table1:\n  - {row: a, column: {T: T_max}, value: 0.5, stated_in: x}\n  - {row: b, value: 1}\n"
    )
    with pytest.raises(ConfigError, match=r"p\.yaml:3"):
        stated_numbers("p", tmp_path)


def test_a_paper_without_stated_numbers_is_fine_and_one_that_looks_misspelt_is_not(tmp_path: Path) -> None:
    (tmp_path / "rotate_the_loop.yaml").write_text("{}\n")
    assert stated_numbers("mine", tmp_path) == {}
    with pytest.raises(ConfigError, match="Did you mean 'rotate_the_loop'"):
        stated_numbers("rotate_the_lop", tmp_path)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ({"row": "diagonal", "column": {"grup": "A5"}}, "no axis 'grup'. Did you mean 'group'"),
        ({"row": "diagonall", "column": {}}, "axis 'method' has no 'diagonall'. Did you mean 'diagonal'"),
        ({"row": "G=2", "column": {"T": "Tmax"}}, "axis 'T' has no 'Tmax'. Did you mean 'T_max'"),
    ],
)
def test_a_stated_number_at_no_place_of_the_table_is_an_error(
    monkeypatch: pytest.MonkeyPatch, number: dict[str, Any], message: str
) -> None:
    stated = StatedNumber.model_validate(number | {"value": 0.5, "stated_in": "here"})
    monkeypatch.setattr("looprepro.planning.references.stated_numbers", lambda _paper: {"table1": [stated]})
    with pytest.raises(ConfigError, match=re.escape(message)):
        stated_of(load_sweep("table1"))


def test_every_number_that_a_paper_states_has_a_place_in_its_table() -> None:
    numbers = {name: stated_of(load_sweep(name)) for name in available_sweeps()}
    stated = [name for paper in ("rotate_the_loop", "fixed_point_reasoners") for name in stated_numbers(paper)]
    assert sorted(name for name, found in numbers.items() if found) == sorted(stated)


@pytest.mark.parametrize("seeds", ["[-1]", "99999999999", "[0, 1.5]"])
def test_seeds_that_no_cell_can_have_are_refused_before_anything_runs(seeds: str, tmp_path: Path) -> None:
    text = (sweeps_folder() / "table1.yaml").read_text(encoding="utf-8").replace("seeds: 0-1", f"seeds: {seeds}")
    assert f"seeds: {seeds}" in text
    (tmp_path / "table1.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="seeds"):
        load_sweep(tmp_path / "table1.yaml")


@pytest.mark.parametrize("text", ["0-1000000000", "0-99999,200000", "5-2147483647"])
def test_more_seeds_than_memory_holds_are_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="are more than 100000"):
        parse_seeds(text)
