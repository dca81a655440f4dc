"""What a plan says of the language models' needs."""

from __future__ import annotations

import pytest

from looprepro.cli.plan import print_plan
from looprepro.planning import expand, load_sweep, plan
from looprepro.planning.sizes import sizes


def test_a_size_is_one_line_whatever_the_methods_seeds_and_gradients() -> None:
    made = plan(expand(load_sweep("table8"), "paper", seeds="0-1").cells, {})
    (size,) = sizes(made.items)
    assert (size.parameters, size.width, size.steps, size.ranks, size.cells) == (61_125_120, 640, 2331, 8, 34)
    assert size.tokens_per_parameter == pytest.approx(20, abs=0.01)
    assert size.hours is not None
    assert size.hours * 8 == pytest.approx(max(item.hours for item in made.items if item.hours))
    assert 1e9 < size.memory_bytes < 80e9
    assert sizes(plan(expand(load_sweep("table1"), "paper").cells, {}).items) == []


def test_the_printed_plan_names_gpus_memory_and_hours_of_each_size(capsys) -> None:
    expansion = expand(load_sweep("table4"), "paper")
    print_plan([expansion], plan(expansion.cells, {}))
    printed = [line for line in capsys.readouterr().out.splitlines() if " width " in line]
    assert [line.split(":")[0].strip() for line in printed] == ["width 640", "width 768", "width 1024"]
    assert all("8 GPUs a cell" in line and "GB each" in line and "h a cell" in line for line in printed)
    assert "388,003,328 parameters, 80 tokens each, 59,204 steps" in printed[2]
