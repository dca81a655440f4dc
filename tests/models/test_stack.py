"""A stack of models equals its members, gradients included, and serves them with one product each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from looprepro import randomness
from looprepro.config.cell import Injection, Recurrence
from looprepro.config.cell import LoopedTransformer as Config
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.stack import stacked

torch.set_num_threads(1)
STACK, ROWS, TIME, VOCABULARY, WIDTH = 3, 5, 6, 11, 16
DEPTHS = torch.tensor([3, 1, 4, 4, 2])
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
CONFIGS: dict[str, dict[str, Any]] = {
    "diagonal": {},
    "diagonal, fixed": {"injection": Injection(decay="fixed")},
    "grouped": {"injection": Injection(method="grouped_diagonal", groups=2)},
    "pairwise": {"injection": Injection(method="conformal", groups=4, omega_init="normal")},
    "cayley": {"injection": Injection(method="conformal", groups=2, chart="cayley")},
    "cayley, one group": {"injection": Injection(method="conformal", groups=1, chart="cayley")},
    "householder, fixed": {"injection": Injection(method="conformal", groups=2, chart="householder", decay="fixed")},
    "value tables, head of its own": {"value_embeddings": True, "tied_head": False},
    "gradient through the last two steps": {"recurrence": Recurrence(backprop_depth=2)},
}


class Calls(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    @property
    def products(self) -> int:
        return sum(self.count[name] for name in PRODUCTS)


def build(seed: int, **keys: Any) -> LoopedTransformer:
    """Float64, every parameter away from its start, where output projections are zero."""
    layers = {"prelude_layers": 1, "core_layers": 1, "coda_layers": 1}
    model = LoopedTransformer(Config(**({"width": WIDTH, "heads": 2} | layers | keys)), VOCABULARY, TIME)
    model.initialise(seed)
    model = model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=randomness.parameter_generator(90 + seed, name), dtype=torch.float64)
            parameter.add_(0.1 * noise)
    return model


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens ``[STACK, ROWS, TIME]`` and states of each member's own."""
    rows = torch.arange(STACK * ROWS)
    tokens = randomness.integers(0, randomness.WORDS, 0, rows, TIME, VOCABULARY).view(STACK, ROWS, TIME)
    noise = randomness.truncated_normal(0, randomness.STATE, 0, rows, TIME * WIDTH)
    return tokens, noise.double().view(STACK, ROWS, TIME, WIDTH) * 0.2


@pytest.mark.parametrize("keys", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("masked_loop", [False, True])
def test_a_stack_computes_what_its_members_compute(keys: dict[str, Any], masked_loop: bool) -> None:
    models = [build(seed, **keys) for seed in range(STACK)]
    tokens, state = inputs()
    stack = stacked(models)
    stack.masked_loop = masked_loop
    logits = stack(tokens, DEPTHS, state)
    assert logits.shape == (STACK, ROWS, TIME, VOCABULARY)
    weight = torch.linspace(-1.0, 1.0, logits[0].numel(), dtype=torch.float64).view(logits[0].shape)
    (logits * weight).sum().backward()
    for i, model in enumerate(models):
        alone = model(tokens[i], DEPTHS, state[i])
        (alone * weight).sum().backward()
        torch.testing.assert_close(logits[i], alone, rtol=1e-11, atol=1e-11)
        for name, parameter in model.named_parameters():
            gradient = stack.get_parameter(name).grad
            assert gradient is not None
            torch.testing.assert_close(gradient[i], parameter.grad, rtol=1e-9, atol=1e-9)


def test_one_forward_call_serves_the_stack() -> None:
    models = [build(seed) for seed in range(STACK)]
    tokens, state = inputs()
    stack = stacked(models)
    with Calls() as together:
        stack(tokens, DEPTHS, state)
    with Calls() as alone:
        models[0](tokens[0], DEPTHS, state[0])
    # By hand: 4 products per layer; prelude, 4 passes of the core, coda; B e, C h and the head.
    assert together.products == alone.products == 4 * (1 + 4 + 1) + 3


def test_members_do_not_touch_each_other() -> None:
    models = [build(seed) for seed in range(STACK)]
    tokens, state = inputs()
    with torch.no_grad():
        whole = stacked(models)(tokens, DEPTHS, state)
        models[1].embedding.weight.fill_(torch.nan)
        poisoned = stacked(models)(tokens, DEPTHS, state)
    assert torch.isnan(poisoned[1]).all()
    assert torch.equal(poisoned[0], whole[0])
    assert torch.equal(poisoned[2], whole[2])


@pytest.mark.parametrize("keys", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_members_weights_are_the_ones_it_came_with(keys: dict[str, Any]) -> None:
    models = [build(seed, **keys) for seed in range(STACK)]
    stack = stacked(models)
    assert [name for name, _ in stack.named_parameters()] == [name for name, _ in models[0].named_parameters()]
    kept, parameters = stack.state_dict(), dict(stack.named_parameters())
    for i, model in enumerate(models):
        assert kept.keys() == model.state_dict().keys()
        for name, value in model.state_dict().items():
            assert torch.equal(kept[name][i] if name in parameters else kept[name], value)
