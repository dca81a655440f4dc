"""What the command line changes: key=value, key=1,2,3, --only, --seeds."""

from __future__ import annotations

import pytest

from looprepro.files.errors import ConfigError
from looprepro.planning import Sweep, expand
from looprepro.planning.schema import parse_seeds


def test_an_override_replaces_the_value_in_every_cell(small: Sweep) -> None:
    expansion = expand(small, "smoke", overrides=["training.lr=1e-3"])
    assert {cell.cell.training.lr for cell in expansion.cells} == {0.001}
    assert expansion.overrides == ("training.lr=0.001",)
    assert expansion.cells[0].placements[0].overrides == ("training.lr=0.001",)
    assert not {cell.id for cell in expansion.cells} & {cell.id for cell in expand(small, "smoke").cells}


def test_spelling_and_order_of_overrides_do_not_matter(small: Sweep) -> None:
    one = expand(small, "smoke", overrides=["training.lr=1e-3", "task.length=16"])
    two = expand(small, "smoke", overrides=["task.length=16", "training.lr=0.0010"])
    assert one.overrides == two.overrides == ("task.length=16", "training.lr=0.001")
    assert one.cells == two.cells


def test_several_values_multiply_as_a_further_axis_of_rows(small: Sweep) -> None:
    expansion = expand(small, "smoke", overrides=["training.steps=10,20,30"])
    assert expansion.entries == 3 * 12
    assert expansion.layout.rows == ("method", "training.steps")
    assert [c.placements[0].axes["training.steps"] for c in expansion.cells[:6:2]] == ["10", "20", "30"]
    assert expansion.cells[0].placements[0].labels["training.steps"] == "training.steps = 10"
    assert expansion.overrides == ("training.steps=10,20,30",)


def test_values_have_the_type_of_their_key(small: Sweep) -> None:
    expansion = expand(
        small,
        "smoke",
        overrides=["training.clip=null", "task.start_token=false", "training.betas=[0.8,0.9]", "model.mlp_width=2d"],
    )
    cell = expansion.cells[0].cell
    assert cell.training.clip is None
    assert cell.task.start_token is False
    assert cell.training.betas == (0.8, 0.9)
    assert cell.model.mlp_width == 32
    assert "training.betas=[0.8, 0.9]" in expansion.overrides


def test_overriding_T_max_moves_its_mean_and_its_budgets(small: Sweep) -> None:
    cell = expand(small, "smoke", overrides=["model.recurrence.maximum=8"]).cells[0]
    assert cell.cell.model.recurrence.mean == 6.0
    assert [e.evaluation.T for e in cell.evaluations] == [4, 8, 12]


def test_another_budget_adds_an_evaluation_and_retrains_nothing(small: Sweep) -> None:
    plain = expand(small, "smoke")
    more = expand(small, "smoke", overrides=["evaluations.budgets=T_max,64", "evaluations.items=32"])
    assert [cell.id for cell in more.cells] == [cell.id for cell in plain.cells]
    assert [(e.role, e.evaluation.T, e.evaluation.items) for e in more.cells[0].evaluations] == [
        ("T_max", 4, 32),
        ("64", 64, 32),
    ]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.learing_rate=1e-3", "unknown key 'training.learing_rate'. Did you mean 'training.lr'?"),
        ("evaluations.item=5", "Did you mean 'evaluations.items'?"),
        ("training.lr", "not of the form key=value"),
        ("training.lr=", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("training.lr=fast", "'fast' for training.lr"),
        ("training.betas=[0.9", "not a list of values"),
        ("training.steps=0", "training.steps: Input should be greater than or equal to 1"),
        ("model.injection=diagonal", "is a section"),
        ("model.injection.groups=4", "axis 'method' of small sets"),
        ("method=diagonal", "use --only method=ROLE"),
        ("seed=3", "--seeds"),
        ("execution.threads=4", "fixed by the scale"),
        ("model.width=33", "width 33 is odd"),
        ("model.recurrence.maximum=0", "maximum: Input should be greater than or equal to 1"),
        ("evaluations.items=1,2", "Give one value"),
        ("evaluations.budgets=T_max/3", "whole number"),
    ],
)
def test_a_wrong_override_is_an_error_that_quotes_it(small: Sweep, override: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(small, "smoke", overrides=[override])
    assert says in str(caught.value)
    assert override.split("=")[0] in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_key_given_twice_is_an_error(small: Sweep) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        expand(small, "smoke", overrides=["training.lr=1", "training.lr=2"])


def test_only_keeps_roles_of_an_axis(small: Sweep) -> None:
    cells = expand(small, "smoke", only=["method=G=2", "group=S5"]).cells
    assert [cell.placements[0].axes for cell in cells] == [{"group": "S5", "method": "G=2"}] * 2


def test_only_with_several_values_keeps_any_of_them(small: Sweep) -> None:
    for only in (["method=diagonal,d/2"], ["method=diagonal", "method=d/2"]):
        assert {c.placements[0].axes["method"] for c in expand(small, "smoke", only=only).cells} == {"diagonal", "d/2"}


def test_only_keeps_values_of_a_configuration_key(small: Sweep) -> None:
    cells = expand(small, "smoke", only=["model.injection.groups=2"]).cells
    assert {cell.placements[0].axes["method"] for cell in cells} == {"G=2"}
    swept = expand(small, "smoke", overrides=["training.lr=1e-3,1e-4"], only=["training.lr=0.0001"])
    assert {cell.cell.training.lr for cell in swept.cells} == {1e-4}


def test_only_keeps_seeds_and_budgets(small: Sweep) -> None:
    cells = expand(small, "mini", only=["seed=3", "T=T_max"]).cells
    assert {cell.cell.seed for cell in cells} == {3}
    assert all([e.role for e in cell.evaluations] == ["T_max"] for cell in cells)
    assert [e.evaluation.T for e in expand(small, "mini", only=["T=12"]).cells[0].evaluations] == [12]


def test_only_makes_a_part_of_the_same_cells(small: Sweep) -> None:
    part = expand(small, "smoke", only=["method=diagonal"]).cells
    assert {cell.id for cell in part} < {cell.id for cell in expand(small, "smoke").cells}
    assert part[0].placements[0].overrides == ()


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("method=G=3", "Did you mean 'G=2'? There are: diagonal, G=2, d/2"),
        ("metod=diagonal", "Did you mean 'method'?"),
        ("training.lerning_rate=1", "Did you mean 'training.lr'?"),
        ("model.injection.groups=4", "nothing has that value"),
        ("seed=9", "There are: 0, 1"),
        ("T=5", "There are: T_max/2, 2, T_max, 4, 3T_max/2, 6"),
        ("method", "not of the form"),
        ("seed=x", "0-4 or 0,2,5"),
    ],
)
def test_only_that_keeps_nothing_says_what_there_is(small: Sweep, only: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(small, "smoke", only=[only])
    assert says in str(caught.value)


def test_only_that_keeps_nothing_together_is_an_error(small: Sweep) -> None:
    with pytest.raises(ConfigError, match="no cell has all of"):
        expand(small, "smoke", only=["model.injection.method=diagonal", "model.injection.groups=2"])


def test_seeds_replace_those_of_the_scale(small: Sweep) -> None:
    assert [c.cell.seed for c in expand(small, "smoke", seeds="100-102", only=["method=G=2", "group=A5"]).cells] == [
        100,
        101,
        102,
    ]


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", (0, 1, 2, 3, 4)), ("0,2,5", (0, 2, 5)), ("7", (7,)), ("3, 0-3", (3, 0, 1, 2))]
)
def test_seeds_are_written_as_ranges_and_lists(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "4-0", "-1", "a", "0--2", "1,,2", "1.5"])
def test_seeds_that_make_no_sense_are_refused(small: Sweep, text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        expand(small, "smoke", seeds=text)
