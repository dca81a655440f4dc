"""The geometry that a run records: agrees with the closed forms, and stays silent where nothing can be measured."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.geometry.powers import powers
from looprepro.geometry.probes import sphere
from looprepro.geometry.toeplitz import blockwise_defects, sphere_defects
from looprepro.models.injections import make_injection
from looprepro.planning import expand, load_sweep
from looprepro.training.operator_geometry import operator_metrics, operator_series


def test_a_scaled_rotation_has_no_defect_turns_forever_and_shrinks_by_c() -> None:
    angle, c = 0.3, 0.5
    turn = c * torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    found = operator_metrics(turn, 1, [2, 9])
    for T in (2, 9):
        values = {name: metric["value"] for name, metric in found[T].items()}
        assert values["defect_sphere"] < 1e-12
        assert values["turning"] == pytest.approx(math.sin(angle))
        assert values["log_contraction"] == pytest.approx(math.log(c))
        assert {metric["items"] for metric in found[T].values()} == {256}


def test_a_spread_diagonal_collapses_in_direction_and_two_rates_are_clean_inside_their_groups_only() -> None:
    found = operator_metrics(torch.diag(torch.tensor([0.9, 0.9, 0.3, 0.3], dtype=torch.float64)), 2, [2, 24])
    assert found[24]["turning"]["value"] < 1e-9 < found[2]["turning"]["value"]
    assert found[24]["defect_sphere"]["value"] > 0.01
    assert found[24]["defect_blockwise"]["value"] < 1e-12


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_metrics_are_those_of_the_plain_functions(groups: int) -> None:
    matrix = torch.block_diag(
        *torch.randn(groups, 8 // groups, 8 // groups, generator=torch.Generator().manual_seed(3)).double()
    )
    found = operator_metrics(matrix, groups, [4, 12])
    walk = powers(matrix, sphere(8), 12)
    for T in (4, 12):
        values = {name: metric["value"] for name, metric in found[T].items()}
        assert values["defect_sphere"] == pytest.approx(sphere_defects(matrix, [T])[T], rel=1e-12)
        assert values["defect_blockwise"] == pytest.approx(blockwise_defects(matrix, groups, [T])[T], rel=1e-12)
        across = (walk.directions[T] * walk.directions[T - 1]).sum(dim=1)
        assert values["turning"] == pytest.approx((1 - across**2).clamp(min=0).sqrt().mean().item(), rel=1e-6)
        lengths = (torch.linalg.matrix_power(matrix, T) @ sphere(8).T).norm(dim=0)
        assert values["log_contraction"] == pytest.approx(lengths.log().mean().item() / T, rel=1e-9)


def test_an_operator_that_kills_a_probe_leaves_no_metric_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert operator_metrics(torch.zeros(4, 4, dtype=torch.float64), 1, [2]) == {2: {}}
    assert "geometry not measured" in capsys.readouterr().err


def test_an_operator_that_mixes_its_groups_lacks_only_the_defect_inside_them(capsys: pytest.CaptureFixture[str]) -> None:
    matrix = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)).double()
    mixed, whole = operator_metrics(matrix, 2, [2])[2], operator_metrics(matrix, 1, [2])[2]
    assert mixed == {name: metric for name, metric in whole.items() if name != "defect_blockwise"}
    assert "no defect_blockwise: the operator mixes the 2 groups of 2 neighbouring" in capsys.readouterr().err


def test_the_drawn_gram_matrix_is_toeplitz_for_one_group_and_inside_a_group() -> None:
    planned = next(cell for cell in expand(load_sweep("table1"), "smoke", only=["method=G=2"], seeds="0").cells)
    injection = make_injection(planned.cell.model.injection, 16)
    with torch.no_grad():
        injection.omega.uniform_(0.1, 1.0, generator=torch.Generator().manual_seed(1))
        injection.rates.dt_bias.copy_(torch.tensor([0.0, 1.0]))
    series = operator_series(planned.cell.model, injection, injection)
    grams = {name: torch.tensor(series[name]["y"]).view(5, 5) for name in ("gram@sphere", "gram@group")}
    assert series["gram@group"]["x"] == [float(i) for i in range(25)]

    def lag_one_spread(matrix: torch.Tensor) -> float:
        lag = torch.diagonal(matrix, 1)
        return float(lag.max() - lag.min())

    assert lag_one_spread(grams["gram@group"]) < 1e-6
    assert lag_one_spread(grams["gram@sphere"]) > 1e-3
    assert len(series["spectrum"]["x"]) == len(series["spectrum@0"]["y"]) == 16
