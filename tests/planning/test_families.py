"""Cells of other families in a sweep: kinds that do not fit are refused, and an axis may only change what is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from looprepro.config.cell import Cell
from looprepro.files.errors import ConfigError
from looprepro.planning import expand, load_sweep
from looprepro.planning.keys import leaves


def test_a_model_that_cannot_learn_the_task_is_refused() -> None:
    with pytest.raises(ValidationError, match="fixed_point cannot learn group_words: use looped_transformer"):
        Cell.model_validate({"task": {}, "model": {"kind": "fixed_point"}, "training": {}, "seed": 0})
    with pytest.raises(ValidationError, match=r"language is trained by training\.kind tokens, not steps"):
        Cell.model_validate({"task": {"kind": "language"}, "model": {}, "training": {}, "seed": 0})


def test_the_kind_decides_which_keys_exist(tmp_path: Path) -> None:
    document = yaml.safe_load(Path("sweeps/table1.yaml").read_text())
    document["name"] = "wrong"
    document["base"]["task"] = {"kind": "language", "vocabulary": 64, "length": 8}
    document["axes"].pop("group")
    document["layout"]["columns"] = ["T"]
    document["scales"] = {"smoke": {"note": "a test", "seeds": "0", "set": {"training": {"kind": "tokens"}}}}
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=r"wrong\.yaml:\d+: task\.length = 8: language has no such key"):
        expand(load_sweep(str(path)), "smoke")


def test_keys_of_every_kind_are_known_and_parsed_by_any_of_their_types() -> None:
    assert {"training.steps", "training.tokens", "task.vocabulary", "model.layers"} <= leaves().keys()
    assert leaves()["training.kind"].parse("tokens") == "tokens"
    assert leaves()["training.kind"].parse("windows") == "windows"
    assert leaves()["training.batch"].default == 256
