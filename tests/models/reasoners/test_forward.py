"""Forward passes of every reasoner against a short independent writing of them, and parameter counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config import reasoner_formulas
from looprepro.config.reasoners import FixedPointReasoner as FixedPoint
from looprepro.config.reasoners import RecursiveModel
from looprepro.files.errors import ConfigError
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.reasoner import Reasoner
from looprepro.models.reasoners import make_reasoner

torch.set_num_threads(1)
GRID, VOCABULARY, ROWS = (3, 3), 7, 2
SHAPES = Shapes(VOCABULARY, 9, causal=False, grid=GRID, identifiers=3)
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "prefix": 2}
SUDOKU = Shapes(11, 81, causal=False, grid=(9, 9), identifiers=1)


def build(config: FixedPoint | RecursiveModel, shapes: Shapes = SHAPES, shake: float = 0.3) -> Reasoner:
    """In float64, every parameter and the puzzle table moved away from its start."""
    model = make_reasoner(config, shapes)
    model.initialise(0)
    model = model.double()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), ("puzzles", model.frame.puzzles)]:
            if tensor is not None:
                noise = torch.randn(tensor.shape, generator=randomness.parameter_generator(5, name), dtype=torch.float64)
                tensor.add_(shake * noise)
    return model


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Written:
    """The loop of the specification, 1.1 to 1.4 and 7, from named weights."""

    def __init__(self, config: Any, weights: dict[str, Tensor], shapes: Shapes) -> None:
        self.config, self.shapes = config, shapes
        self.weights = {name: tensor.detach() for name, tensor in weights.items()}

    def attention(self, name: str, x: Tensor, qk_norm: bool = False) -> Tensor:
        head_width = x.shape[-1] // self.config.heads
        parts = (x @ self.weights[f"{name}.qkv.weight"].T).split(x.shape[-1], dim=-1)
        outputs = []
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * torch.tensor(
            [10_000.0 ** (-2 * i / head_width) for i in range(head_width // 2)], dtype=torch.float64
        )
        for head in range(self.config.heads):
            q, k, v = (part[..., head * head_width : (head + 1) * head_width] for part in parts)
            if self.config.positions == "rope":
                q, k = (self.turned(t, angles) for t in (q, k))
            if qk_norm:
                q, k = rms(q), rms(k)
            scores = q @ k.mT / math.sqrt(head_width)
            if self.shapes.causal:
                scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -math.inf)
            outputs.append(scores.softmax(-1) @ v)
        return torch.cat(outputs, -1) @ self.weights[f"{name}.out.weight"].T

    @staticmethod
    def turned(t: Tensor, angles: Tensor) -> Tensor:
        a, b = t[..., 0::2], t[..., 1::2]
        c, s = angles.cos(), angles.sin()
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def swiglu(self, name: str, x: Tensor) -> Tensor:
        matrix = self.weights[f"{name}.gate_up.weight"]
        gate, up = (x @ part.T for part in matrix.split(len(matrix) // 2))
        hidden = gate * torch.sigmoid(gate) * up
        if f"{name}.convolution.weight" in self.weights:
            taps = self.weights[f"{name}.convolution.weight"][:, 0]
            before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], 1)
            mixed = before * taps[:, 0] + hidden * taps[:, 1] + self.weights[f"{name}.convolution.bias"]
            hidden = mixed * torch.sigmoid(mixed)
        return hidden @ self.weights[f"{name}.down.weight"].T

    def convolved(self, name: str, z: Tensor) -> Tensor:
        taps, prefix = self.weights[f"{name}.weight"], self.config.prefix
        out = z.clone()
        for t in range(z.shape[1] - prefix):
            total = torch.zeros_like(z[:, 0])
            if self.config.convolution == "1d":
                for lag in range(min(4, t + 1)):
                    total = total + z[:, prefix + t - lag] * taps[:, 0, 3 - lag]
            else:
                row, column = divmod(t, GRID[1])
                for i in (-1, 0, 1):
                    for j in (-1, 0, 1):
                        if 0 <= row + i < GRID[0] and 0 <= column + j < GRID[1]:
                            total = total + z[:, prefix + t + i * GRID[1] + j] * taps[:, 0, i + 1, j + 1]
            out[:, prefix + t] = total
        return out

    def coefficients(self, name: str, z: Tensor) -> tuple[Any, Any, Any, Any]:
        kind, n = self.config.residual_scale, 2 * self.config.layers
        if kind == "none":
            return 1.0, 1.0, 1.0, 1.0
        if kind == "outer_only":
            a2 = torch.sigmoid(self.weights[f"{name}.alpha_2"])
            return 1.0, 1.0, a2, 1.0 - a2
        if kind == "fixed":
            a1, a2 = self.config.alpha_1, self.config.alpha_2
        elif kind == "input_dependent":
            a1, a2 = (
                torch.sigmoid(z @ self.weights[f"{name}.gate_{i}.weight"].T + self.weights[f"{name}.gate_{i}.bias"])
                for i in (1, 2)
            )
        else:
            a1, a2 = (torch.sigmoid(self.weights[f"{name}.alpha_{i}"]) for i in (1, 2))
        b2 = 1 - a2 * a1**n
        return a1, b2 * (1 - a1) / (1 - a1**n), a2, b2

    def loop(self, name: str, z: Tensor, x: Tensor) -> Tensor:
        config = self.config
        if config.convolution != "none":
            z = self.convolved(f"{name}.convolution", z)
        placement = getattr(config, "norm_placement", "none")
        if placement == "input":
            z = rms(z)
        a1, b1, a2, b2 = self.coefficients(f"{name}.scaling", z)
        z = a2 * z + b2 * x
        for i in range(config.layers):
            layer = f"{name}.layers.{i}"
            for part in ("mixer", "mlp"):
                y = z if config.norm == "post" else rms(z)
                if part == "mixer" and getattr(config, "mixer", "attention") == "mlp":
                    f = self.swiglu(f"{layer}.mixer.glu", y.mT).mT
                else:
                    f = self.attention(f"{layer}.mixer", y) if part == "mixer" else self.swiglu(f"{layer}.mlp", y)
                if config.norm == "peri":
                    f = rms(f)
                z = a1 * z + b1 * f
                if config.norm == "post":
                    z = rms(z)
        return rms(z) if placement == "output" else z

    def embedded(self, inputs: Tensor, puzzles: Tensor) -> Tensor:
        scale = math.sqrt(self.config.width)
        tokens = self.weights["frame.embedding.weight"][inputs]
        if self.config.prefix == 0:
            return scale * tokens
        front = torch.zeros(len(inputs), self.config.prefix, self.config.width, dtype=torch.float64)
        front[:, 0] = self.weights["frame.puzzles"][puzzles]
        return scale * torch.cat([front, tokens], 1)

    def decoded(self, z: Tensor) -> tuple[Tensor, Tensor]:
        head = self.weights.get("frame.head.weight", self.weights["frame.embedding.weight"])
        halting = z[:, 0] @ self.weights["frame.halting.weight"].T + self.weights["frame.halting.bias"]
        return z[:, self.config.prefix :] @ head.T, halting


def inputs_of(model: Reasoner) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens, puzzle identifiers, z_0)."""
    rows, time = torch.arange(ROWS), model.shapes.time
    tokens = randomness.integers(0, randomness.WORDS, 0, rows, time, model.shapes.vocabulary)
    shape = model.state_shape(time)
    drawn = randomness.truncated_normal(1, randomness.STATE, 0, rows, math.prod(shape), 2.0).double()
    return tokens, torch.tensor([2, 0]), model.initial_state(drawn.reshape(ROWS, *shape))


def written(model: Reasoner) -> Written:
    return Written(model.config, dict(model.state_dict()), model.shapes)


def assert_same(model: Reasoner, z: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(z, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(model.decode(z), written(model).decoded(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "keys",
    [
        {"convolution": "2d"},
        {"convolution": "1d", "norm_placement": "output"},
        {"convolution": "1d", "norm_placement": "input", "norm": "peri"},
        {"norm": "post", "residual_scale": "none"},
        {"norm": "post", "residual_scale": "fixed", "alpha_1": 0.75, "alpha_2": 0.25},
        {"residual_scale": "none"},
        {"residual_scale": "input_dependent", "positions": "none"},
        {"residual_scale": "outer_only", "prefix": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_one_iteration_of_the_fixed_point_reasoner(keys: dict[str, Any], causal: bool) -> None:
    shapes = Shapes(VOCABULARY, 9, causal, GRID, 3)
    model = build(FixedPoint(**(SMALL | keys)), shapes)
    tokens, puzzles, z = inputs_of(model)
    x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles))
    reference = written(model)
    torch.testing.assert_close(x, reference.embedded(tokens, puzzles))
    assert_same(model, model.iterate(z, x), reference.loop("loop", z, reference.embedded(tokens, puzzles)))


def cycles(reference: Written, config: RecursiveModel, z: Tensor, x: Tensor) -> Tensor:
    """TRM, HRM and (without noise) EqR as their pseudo-code has them."""
    high, low = z.unbind(1)
    names = ("nets.high", "nets.low") if config.method == "hrm" else ("nets.net", "nets.net")
    keep = 1.0 - config.damping
    for _ in range(config.high_cycles):
        for _ in range(config.low_cycles):
            low = keep * low + config.damping * reference.loop(names[1], low, high + x)
        high = keep * high + config.damping * reference.loop(names[0], high, low)
    return torch.stack([high, low], 1)


@pytest.mark.parametrize(
    "keys",
    [
        {"method": "trm"},
        {"method": "trm", "norm": "pre", "residual_scale": "input_independent", "convolution": "2d"},
        {"method": "trm", "mixer": "mlp", "positions": "none"},
        {"method": "hrm", "prefix": 1},
        {"method": "eqr", "mixer": "mlp", "positions": "none", "prefix": 0, "damping": 0.95},
    ],
    ids=str,
)
def test_one_supervision_step_of_the_hierarchical_models(keys: dict[str, Any]) -> None:
    config = RecursiveModel(**(SMALL | {"layers": 1, "high_cycles": 2, "low_cycles": 2} | keys))
    model = build(config)
    tokens, puzzles, z = inputs_of(model)
    x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles))
    after = model.iterate(z, x)
    expected = cycles(written(model), config, z, x)
    torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-5)
    logits, halting = model.decode(after)
    theirs = written(model).decoded(expected[:, 0])
    torch.testing.assert_close(logits, theirs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(halting, theirs[1], rtol=1e-5, atol=1e-5)


def test_one_supervision_step_of_urm() -> None:
    config = RecursiveModel(method="urm", **(SMALL | {"high_cycles": 2, "low_cycles": 3}))
    model = build(config)
    tokens, puzzles, z = inputs_of(model)
    x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles))
    expected = z
    for _ in range(6):
        expected = written(model).loop("net", expected, x)
    assert_same(model, model.iterate(z, x), expected)


def test_attractor_ends_at_a_fixed_point_of_its_block() -> None:
    config = RecursiveModel(
        method="attractor", norm="pre", **(SMALL | {"layers": 1, "solver_iterations": 200, "solver_tolerance": 1e-9})
    )
    model = build(config, shake=0.02)
    tokens, puzzles, z = inputs_of(model)
    x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles))
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    reference = written(model)

    def block(name: str, y: Tensor, gates: Tensor) -> Tensor:
        normed = rms(y) * weights[f"{name}.norm_1.weight"]
        y = y + gates[0] * reference.attention(f"{name}.attention", normed, qk_norm=True)
        hidden = (rms(y) * weights[f"{name}.norm_2.weight"]) @ weights[f"{name}.mlp.up.weight"].T
        return y + gates[1] * (hidden.clamp(min=0).square() @ weights[f"{name}.mlp.down.weight"].T)

    with torch.no_grad():
        y = model.iterate(z, x)
        c = block("backbone.0", x, torch.ones(2, 1))
        again = block("blocks.0", y + c, 0.75 * torch.sigmoid(weights["blocks.0.gates"])) - y
    assert bool((model.evaluations < 200).all())  # type: ignore[operator]
    torch.testing.assert_close(again, y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        model.decode(y)[0], (rms(y) * weights["norm.weight"])[:, 2:] @ weights["frame.embedding.weight"].T
    )


def test_noise_is_added_at_every_call_of_eqr() -> None:
    config = RecursiveModel(method="eqr", noise=0.5, **(SMALL | {"layers": 1, "high_cycles": 1, "low_cycles": 2}))
    model = build(config)
    assert model.noisy_calls == 3
    tokens, puzzles, z = inputs_of(model)
    x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles))
    calls = []

    def draw(call: int) -> Tensor:
        calls.append(call)
        return torch.full_like(x, float(call + 1))

    low = written(model).loop("nets.net", z[:, 1], z[:, 0] + x) + 0.5
    low = written(model).loop("nets.net", low, z[:, 0] + x) + 1.0
    high = written(model).loop("nets.net", z[:, 0], low) + 1.5
    torch.testing.assert_close(model.iterate(z, x, draw), torch.stack([high, low], 1), rtol=1e-5, atol=1e-5)
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    ("config", "shapes", "count"),
    [
        (FixedPoint(convolution="2d"), SUDOKU, 6_833_666),
        (FixedPoint(convolution="1d", norm_placement="output"), Shapes(6, 900, False, (30, 30), 1), 6_825_986),
        (FixedPoint(convolution="1d"), Shapes(12, 900, False, (30, 30), 1), 6_832_130),
        (FixedPoint(convolution="1d", prefix=0, positions="none"), Shapes(61, 128, True), 6_882_306),
        (FixedPoint(convolution="1d", prefix=0, positions="none"), Shapes(121, 128, True), 6_943_746),
        # The plain loops: 2 layers of 3,407,872, the convolution's taps, embedding and head, halting head 1026; no scaling
        (FixedPoint(convolution="2d", residual_scale="none"), SUDOKU, 2 * 3_407_872 + 9 * 512 + 2 * 11 * 512 + 1026),
        (
            FixedPoint(norm="post", residual_scale="none", convolution="1d", prefix=0, positions="none"),
            Shapes(61, 128, True),
            2 * 3_407_872 + 4 * 512 + 2 * 61 * 512 + 1026,
        ),
        (FixedPoint(norm="peri", residual_scale="none"), SUDOKU, 2 * 3_407_872 + 2 * 11 * 512 + 1026),
        # and one vector of a2 alone, or two maps of the state with their offsets
        (FixedPoint(residual_scale="outer_only"), SUDOKU, 2 * 3_407_872 + 512 + 2 * 11 * 512 + 1026),
        (FixedPoint(residual_scale="input_dependent"), SUDOKU, 2 * 3_407_872 + 2 * (512**2 + 512) + 2 * 11 * 512 + 1026),
        (RecursiveModel(method="trm"), SUDOKU, 6_828_034),
        (RecursiveModel(method="trm", mixer="mlp", positions="none"), SUDOKU, 5_028_866),
        (RecursiveModel(method="hrm", layers=4, high_cycles=2, low_cycles=2, prefix=1), SUDOKU, 27_275_266),
        # 4 layers of 3,407,872 with 3 x 1536 in each convolution, embedding and head 2 x 11 x 512, halting head 1026
        (RecursiveModel(method="urm", layers=4, high_cycles=2), SUDOKU, 4 * (3_407_872 + 4_608) + 12_290),
        # 2 layers of 2,359,296 and 81 x 256 x 3 between positions
        (RecursiveModel(method="eqr", mixer="mlp", positions="none", prefix=0), SUDOKU, 2 * (2_359_296 + 62_208) + 12_290),
        # 2 blocks of 4 d^2 and 2 x 4 d^2, norms 5 d, gates 2 d, a tied table 11 d, halting head 2 d + 2
        (RecursiveModel(method="attractor", layers=1, norm="pre"), SUDOKU, 2 * 12 * 512**2 + 20 * 512 + 2),
    ],
    ids=lambda value: getattr(value, "method", getattr(value, "kind", "")),
)
def test_parameter_counts(config: FixedPoint | RecursiveModel, shapes: Shapes, count: int) -> None:
    with torch.device("meta"):
        model = make_reasoner(config, shapes)
    assert sum(p.numel() for p in model.parameters()) == count
    assert reasoner_formulas.parameters(config, shapes.vocabulary, shapes.time) == count


def test_the_start_is_lecun_and_of_unit_variance() -> None:
    model = make_reasoner(FixedPoint(width=128, heads=2, convolution="1d"), SHAPES)
    model.initialise(4)
    layer = model.loop.layers[0]  # type: ignore[union-attr]
    for linear in (layer.mixer.qkv, layer.mixer.out, layer.mlp.gate_up, layer.mlp.down):  # type: ignore[union-attr]
        weight = linear.weight.detach()  # type: ignore[union-attr]
        assert float(weight.std()) == pytest.approx(weight.shape[1] ** -0.5, rel=0.02)
        assert float(weight.abs().max()) < 2.0 / 0.879 * weight.shape[1] ** -0.5
    x = model.frame.embed(torch.arange(7).unsqueeze(0), None).detach()
    assert float(x[:, 16:].std()) == pytest.approx(1.0, rel=0.1)
    assert torch.equal(model.frame.halting.bias, torch.full((2,), -5.0))
    alphas = torch.sigmoid(model.loop.scaling.alpha_1.detach())  # type: ignore[union-attr,arg-type]
    torch.testing.assert_close(alphas, torch.full((128,), 0.5))


def test_seeds_differ_and_arms_share_what_they_have_in_common() -> None:
    def weight(seed: int, **keys: Any) -> Tensor:
        model = make_reasoner(FixedPoint(**(SMALL | keys)), SHAPES)
        model.initialise(seed)
        return model.state_dict()["loop.layers.1.mlp.down.weight"]

    assert torch.equal(weight(1), weight(1, norm="post", residual_scale="none", convolution="2d"))
    assert not torch.equal(weight(1), weight(2))


def test_a_2d_convolution_needs_a_grid() -> None:
    with pytest.raises(ConfigError, match="a 2d convolution needs a task on a grid"):
        make_reasoner(FixedPoint(**SMALL, convolution="2d"), Shapes(5, 9, True))


def test_only_the_last_cycle_has_gradient() -> None:
    """TRM: through the last cycle. HRM: through the last update of each state, so that x gets gradient through one call."""
    for method, changed in (("trm", 4), ("hrm", 2)):
        config = RecursiveModel(method=method, **(SMALL | {"layers": 1, "high_cycles": 2, "low_cycles": 3}))
        model = build(config)
        tokens, puzzles, z = inputs_of(model)
        x = model.frame.embed(tokens, model.frame.puzzle_vectors(puzzles)).detach()
        graded = []

        def note(name: str, call: Any, graded: list[str] = graded) -> Any:
            def counted(*arguments: Any) -> Tensor:
                graded.extend([name] if torch.is_grad_enabled() else [])
                return call(*arguments)

            return counted

        for name, net in model.nets.items():  # type: ignore[union-attr,operator]
            net.forward = note(name, net.forward)
        model.iterate(z, x)
        assert len(graded) == changed
