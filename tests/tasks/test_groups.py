"""Groups: the canonical order, the convention of products, the axioms, generating sets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.config.tasks import GROUPS, known_group
from looprepro.files.errors import ConfigError
from looprepro.tasks.groups import MAX_ORDER, _order, finite_group

torch.set_num_threads(1)

NAMES = ["S2", "S3", "S4", "S5", "A3", "A4", "A5", "A6", "Z2", "Z5", "Z60"]


def element(group, images: str) -> int:
    """The id of the permutation written as a string of images."""
    wanted = torch.tensor([int(image) for image in images])
    (place,) = (group.permutations == wanted).all(dim=1).nonzero().flatten().tolist()
    return place


@pytest.mark.parametrize(
    ("name", "order"), [("S2", 2), ("S3", 6), ("S5", 120), ("S6", 720), ("A3", 3), ("A4", 12), ("A5", 60), ("Z7", 7)]
)
def test_orders_are_those_of_the_groups(name, order):
    group = finite_group(name)
    assert group.order == order
    assert group.table.shape == (order, order)
    assert group.table.dtype == torch.int64


def test_ids_follow_the_lexicographic_order_of_images_and_the_identity_is_0():
    s3 = finite_group("S3")
    assert s3.permutations.tolist() == [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    a4 = finite_group("A4")
    assert a4.permutations[:4].tolist() == [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2], [1, 0, 3, 2]]
    assert finite_group("Z4").permutations.tolist() == [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]


def test_the_right_factor_acts_first():
    # By hand: a = (0 1), b = (1 2). a b sends 0 -> 0 -> 1, 1 -> 2 -> 2, 2 -> 1 -> 0, so its images are 1 2 0;
    # b a sends 0 -> 1 -> 2, 1 -> 0 -> 0, 2 -> 2 -> 1, so its images are 2 0 1.
    s3 = finite_group("S3")
    a, b = element(s3, "102"), element(s3, "021")
    assert s3.table[a, b] == element(s3, "120")
    assert s3.table[b, a] == element(s3, "201")


def test_the_whole_table_of_s3_is_the_one_worked_by_hand():
    # Rows a, columns b, entries a(b(x)), ids as in the order above.
    assert finite_group("S3").table.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [1, 0, 4, 5, 2, 3],
        [2, 3, 0, 1, 5, 4],
        [3, 2, 5, 4, 0, 1],
        [4, 5, 1, 0, 3, 2],
        [5, 4, 3, 2, 1, 0],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_that_of_a_group(name):
    group = finite_group(name)
    ids = torch.arange(group.order)
    assert torch.equal(group.table[0], ids)
    assert torch.equal(group.table[:, 0], ids)
    for table in (group.table, group.table.T):  # every row and column holds every element once
        assert torch.equal(table.sort(dim=1).values, ids.expand(group.order, -1))


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), data=st.data())
def test_products_are_associative_and_compose_as_functions(name, data):
    group = finite_group(name)
    a, b, c = (data.draw(st.integers(0, group.order - 1)) for _ in range(3))
    table = group.table
    assert table[table[a, b], c] == table[a, table[b, c]]
    images = [int(group.permutations[a, group.permutations[b, x]]) for x in range(group.permutations.shape[1])]
    assert group.permutations[table[a, b]].tolist() == images


@pytest.mark.parametrize("name", [*NAMES, "A7", "S6"])
def test_the_stated_generators_generate(name):
    group = finite_group(name)
    reached = torch.zeros(group.order, dtype=torch.bool)
    frontier = torch.tensor([0])
    while len(frontier):
        reached[frontier] = True
        products = group.table[frontier][:, list(group.generators)].flatten().unique()
        frontier = products[~reached[products]]
    assert reached.all()


def test_generators_are_the_documented_cycles():
    a5, s5 = finite_group("A5"), finite_group("S5")
    assert a5.generators == (element(a5, "12034"), element(a5, "12340"))
    assert s5.generators == (element(s5, "10234"), element(s5, "12340"))
    a4 = finite_group("A4")
    assert a4.generators == (element(a4, "1203"), element(a4, "0231"))
    assert finite_group("Z60").generators == (1,)
    assert finite_group("S2").generators == (1,)  # the transposition is the 2-cycle: named once


def test_prefix_products_agree_with_a_word_worked_by_hand():
    # a = 102, b = 021 as above. a; a b = 120; a b b = a = 102; a b b a = identity.
    s3 = finite_group("S3")
    a, b = element(s3, "102"), element(s3, "021")
    products = s3.prefix_products(torch.tensor([[a, b, b, a]]))
    assert products.tolist() == [[a, element(s3, "120"), a, 0]]
    z5 = finite_group("Z5")
    assert z5.prefix_products(torch.tensor([1, 2, 3, 4, 0, 3])).tolist() == [1, 3, 1, 0, 0, 3]


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(NAMES), length=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_prefix_products_follow_their_definition_at_every_length(name, length, seed):
    group = finite_group(name)
    words = torch.randint(group.order, (3, length), generator=torch.Generator().manual_seed(seed))
    products = group.prefix_products(words)
    for word, product in zip(words.tolist(), products.tolist(), strict=True):
        running = 0
        for t, letter in enumerate(word):
            running = int(group.table[running, letter])
            assert product[t] == running


@pytest.mark.parametrize("name", ["S1", "A1", "A2", "Z1"])
def test_a_group_of_one_element_is_refused_with_a_remedy(name):
    with pytest.raises(ConfigError, match="one element"):
        finite_group(name)


@pytest.mark.parametrize("name", ["S8", "A9", "Z5041", "S99999999"])
def test_a_group_too_large_for_a_table_is_refused_at_once(name):
    with pytest.raises(ConfigError, match="5040"):
        finite_group(name)


@pytest.mark.parametrize("name", ["D5", "A", "5A", "A05", "A5\n", ""])
def test_an_unknown_group_is_refused(name):
    with pytest.raises(ConfigError, match="unknown group"):
        finite_group(name)


@pytest.mark.parametrize("family", GROUPS)
def test_configurations_take_exactly_the_groups_that_can_be_made(family):
    fewest, most = GROUPS[family]
    for points in (fewest - 1, most + 1):
        with pytest.raises(ValueError, match=f"unknown group '{family}{points}'"):
            known_group(f"{family}{points}")
        with pytest.raises(ConfigError):
            finite_group(f"{family}{points}")
    assert known_group(f"{family}{most}") == f"{family}{most}"
    assert _order(family, most) <= MAX_ORDER < _order(family, most + 1)
