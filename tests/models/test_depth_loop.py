"""The active-rows loop against the plain masked loop, and both against counting by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.files.errors import LoopreproError
from looprepro.models.depth_loop import active_rows, by_depth, checked_depths, masked, split_depth

torch.set_num_threads(1)
WIDTH, TIME = 4, 3


def setting(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return 0.3 * draw(WIDTH, WIDTH), draw(rows, TIME, WIDTH), draw(rows, TIME, WIDTH), draw(rows, TIME, WIDTH)


def run(loop: str, depths: list[int], backprop_depth: int | None) -> tuple[torch.Tensor, ...]:
    """(final states in the given order, gradients of weight, drive, second per-row tensor, initial state)."""
    weight, drive, other, state = (tensor.requires_grad_() for tensor in setting(len(depths)))

    def step(h: torch.Tensor, per_row: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.tanh(h @ weight + per_row[0]) + 0.1 * per_row[1] * h

    if loop == "masked":
        final = masked(step, state, (drive, other), depths, backprop_depth)
    else:
        order = by_depth(depths)
        per_row = (drive[order.sort], other[order.sort])
        final = active_rows(step, state[order.sort], per_row, order.depths, backprop_depth)[order.restore]
    gradients = torch.autograd.grad(final.square().sum(), (weight, drive, other, state), allow_unused=True)
    return (final.detach(), *(torch.zeros(()) if g is None else g for g in gradients))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=7), st.sampled_from([None, 1, 2, 4, 20]))
def test_active_rows_equal_the_masked_loop_with_gradients(depths, backprop_depth):
    for active, plain in zip(run("active", depths, backprop_depth), run("masked", depths, backprop_depth), strict=True):
        assert torch.allclose(active, plain, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("loop", ["active", "masked"])
def test_each_row_equals_its_own_loop_of_exactly_that_many_steps(loop):
    depths = [3, 1, 5, 3]
    final = run(loop, depths, None)[0]
    weight, drive, other, state = setting(4)
    for row, depth in enumerate(depths):
        h = state[row]
        for _ in range(depth):
            h = torch.tanh(h @ weight + drive[row]) + 0.1 * other[row] * h
        assert torch.allclose(final[row], h, rtol=1e-13)


@pytest.mark.parametrize("loop", ["active", "masked"])
def test_gradient_flows_through_the_last_steps_only(loop):
    depths, s = [6, 2, 4], 2
    _, weight_gradient, drive_gradient, _, state_gradient = run(loop, depths, s)
    weight, drive, other, state = setting(3)
    weight.requires_grad_()
    drive.requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row, depth in enumerate(depths):
        h = state[row]
        for done in range(depth):
            if done == depth - s:
                h = h.detach()
            h = torch.tanh(h @ weight + drive[row]) + 0.1 * other[row] * h
        total = total + h.square().sum()
    expected = torch.autograd.grad(total, (weight, drive))
    assert torch.allclose(weight_gradient, expected[0], rtol=1e-12)
    assert torch.allclose(drive_gradient, expected[1], rtol=1e-12)
    assert float(state_gradient.abs().sum()) == 0.0


def test_active_rows_computes_the_sum_of_the_depths_and_no_row_more():
    rows_seen: list[tuple[int, bool]] = []

    def step(h: torch.Tensor, per_row: tuple[torch.Tensor, ...]) -> torch.Tensor:
        assert per_row[0].shape == h.shape
        rows_seen.append((h.shape[0], torch.is_grad_enabled()))
        return h + 1.0

    state = torch.zeros(5, 1, 1)
    final = active_rows(step, state, (state,), [6, 4, 4, 2, 1], backprop_depth=3)
    assert final.flatten().tolist() == [6, 4, 4, 2, 1]
    assert rows_seen == [(3, False), (1, False), (1, False), (5, True), (4, True), (3, True)]


def test_rows_may_lie_along_another_dimension_for_a_stack_of_models():
    def step(h: torch.Tensor, per_row: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return 0.5 * h + per_row[0]

    generator = torch.Generator().manual_seed(0)
    state, drive = torch.randn(2, 3, 1, 4, generator=generator), torch.randn(2, 3, 1, 4, generator=generator)
    stacked = active_rows(step, state, (drive,), [5, 2, 1], backprop_depth=2, dim=1)
    for model in range(2):
        assert torch.equal(stacked[model], active_rows(step, state[model], (drive[model],), [5, 2, 1], backprop_depth=2))


def test_order_sorts_by_falling_depth_keeps_ties_and_restores():
    order = by_depth(torch.tensor([2, 7, 2, 9]))
    assert order.depths == (9, 7, 2, 2)
    assert order.sort.tolist() == [3, 1, 0, 2]
    assert torch.arange(4)[order.sort][order.restore].tolist() == [0, 1, 2, 3]


def test_depths_are_split_into_steps_without_and_with_gradient():
    assert [split_depth(depth, 4) for depth in (1, 4, 9)] == [(0, 1), (0, 4), (5, 4)]
    assert split_depth(9, None) == (0, 9)


def test_no_steps_at_all_is_a_clear_error_with_a_remedy():
    for depths in ([3, 0], torch.tensor([0]), [-1]):
        with pytest.raises(LoopreproError, match=r"at least one recurrent step. Use T >= 1"):
            checked_depths(depths)
    with pytest.raises(LoopreproError, match="without rows"):
        checked_depths([])


def test_unsorted_depths_are_refused_by_the_active_loop():
    state = torch.zeros(2, 1, 1)
    with pytest.raises(ValueError, match="by_depth"):
        active_rows(lambda h, per_row: h, state, (), [1, 2])
