"""Where the papers meet: the first one's injections in the fixed-point loop, its looped transformer under the solver."""

from __future__ import annotations

import pytest
import torch

from looprepro import randomness
from looprepro.config.cell import Cell, Execution, ReasonerEvaluation
from looprepro.config.costs import evaluation_flops, memory_bytes, train_flops
from looprepro.config.models import Injection
from looprepro.config.models import LoopedTransformer as LoopedConfig
from looprepro.config.reasoners import FixedPointReasoner as Config
from looprepro.config.reasoners import SolverFields
from looprepro.files.errors import ConfigError
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.solver import solve
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.reasoners import make_reasoner
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.families import family

torch.set_num_threads(1)
ROWS, TIME = 3, 5
WORDS = Shapes(6, TIME, causal=True)


@pytest.mark.parametrize(
    "injection",
    [Injection(), Injection(method="grouped_diagonal", groups=2), Injection(method="conformal", groups=2)],
    ids=lambda value: value.method,
)
def test_an_injection_stands_where_a2_z_plus_b2_x_stood(injection: Injection) -> None:
    """From its own matrix and B; what it injects is then damped by the layers as before."""
    config = Config(width=8, heads=2, layers=1, prefix=0, positions="none", injection=injection, alpha_1=0.75)
    model = make_reasoner(config, WORDS).double()
    model.initialise(2)
    with torch.no_grad():
        model.loop.injection.B.add_(0.1 * torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))  # type: ignore
    x = model.frame.embed(randomness.integers(0, 0, 0, torch.arange(ROWS), TIME, 6), None)
    z = torch.randn(ROWS, TIME, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = model.loop.injection  # type: ignore[union-attr]
    dt = own.operator().dt  # type: ignore[union-attr,operator]
    injected = z @ own.matrix().T + dt * (x @ own.B.T)  # type: ignore[union-attr,operator]
    expected = model.loop.layers[0](injected, None, model.loop.scaling(z))  # type: ignore[union-attr,index,operator]
    torch.testing.assert_close(model.iterate(z, x), expected, rtol=1e-6, atol=1e-6)


def test_a_contracting_injection_stayed_bounded_when_measured() -> None:
    """Not guaranteed by Theorem 1: measured over 300 iterations from far away."""
    config = Config(width=16, heads=2, layers=2, prefix=0, injection=Injection(method="conformal", groups=4))
    model = make_reasoner(config, WORDS)
    model.initialise(0)
    x = model.frame.embed(randomness.integers(0, 0, 0, torch.arange(ROWS), TIME, 6), None).detach()
    z = 1000.0 * torch.ones(ROWS, TIME, 16)
    norms = []
    with torch.no_grad():
        for _ in range(300):
            z = model.iterate(z, x)
            norms.append(float(z.norm(dim=-1).max()))
    assert max(norms[50:]) < 50.0


def looped(**keys: int) -> LoopedConfig:
    sizes = {"width": 16, "heads": 2, "prelude_layers": 1, "core_layers": 2, "coda_layers": 1} | keys
    return LoopedConfig(**sizes, injection=Injection(method="conformal", groups=2))


def test_the_looped_transformer_as_a_reasoner_is_the_looped_transformer() -> None:
    """T iterations and the readout give the logits of its own forward pass at T, behind its start token."""
    reasoner = make_reasoner(looped(), WORDS)
    reasoner.initialise(3)
    plain = LoopedTransformer(looped(), 7, TIME + 1)
    plain.initialise(3)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=randomness.parameter_generator(1, name)))
        reasoner.network.load_state_dict(plain.state_dict())  # type: ignore[union-attr,operator]
        words = randomness.integers(0, 0, 0, torch.arange(ROWS), TIME, 6)
        drawn = randomness.truncated_normal(0, 0, 0, torch.arange(ROWS), (TIME + 1) * 16, 2.0)
        z = reasoner.initial_state(drawn.reshape(ROWS, *reasoner.state_shape(TIME)))
        tokens = torch.cat([torch.full((ROWS, 1), 6), words], 1)
        expected = plain(tokens, 4, z)[:, 1:, :6]
        x = reasoner.frame.embed(words, None)
        for _ in range(4):
            z = reasoner.iterate(z, x)
        logits, halting = reasoner.decode(z)
    torch.testing.assert_close(logits, expected)
    assert halting.shape == (ROWS, 2)


def test_the_solver_halts_the_looped_transformer_row_by_row() -> None:
    reasoner = make_reasoner(looped(), WORDS)
    reasoner.initialise(3)
    words = randomness.integers(0, 0, 0, torch.arange(ROWS), TIME, 6)
    z = reasoner.initial_state(torch.randn(ROWS, TIME + 1, 16, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        x = reasoner.frame.embed(words, None)
        found = solve(lambda h: reasoner.iterate(h, x), z, SolverFields(tolerance=1e-4), cap=100)
        assert bool(found.converged.all())
        assert int(found.state.count.max()) < 100
        torch.testing.assert_close(reasoner.iterate(found.state.z, x), found.state.z, rtol=1e-2, atol=1e-3)


def test_it_trains_in_windows_and_is_measured_like_any_reasoner() -> None:
    cell = Cell.model_validate(
        {
            "task": {"kind": "state_tracking", "group": "S3", "length": 4, "test_lengths": [6]},
            "model": looped().model_dump(mode="json"),
            "training": {
                "kind": "windows",
                "steps": 5,
                "batch": 8,
                "window": 2,
                "max_windows": 4,
                "warmup": 0,
                "halt_loss": 0.0,
            },
            "seed": 0,
        }
    )
    own, cpu = family(cell), torch.device("cpu")
    trainer = own.trainer(cell, Execution(threads=1, device="cpu"), cpu)
    losses = [trainer.train_step().loss for _ in range(5)]
    assert losses[-1] < losses[0]
    evaluation = ReasonerEvaluation(T=8, items=8)
    document = own.evaluate(cell, Checkpoint(None, 5, 0.0, trainer.tensors(), {}), [evaluation], cpu)[evaluation]  # type: ignore
    assert document["metrics"]["effective_layers"]["value"] == 2 * document["metrics"]["iterations"]["value"]
    flops, memory = train_flops(cell), memory_bytes(cell)
    # Eight items, eight iterations over seven positions: 24 d^2 a position and core layer, and what attention adds.
    products = 8 * 8 * 7 * cell.model.core_layers * 24 * cell.model.width**2
    assert evaluation_flops(cell, [evaluation]) == pytest.approx(products, rel=0.1)
    assert flops is not None
    assert flops > 0
    assert memory is not None
    assert memory > 20 * sum(p.numel() for p in trainer.model.parameters())


def test_puzzles_are_not_for_a_causal_network() -> None:
    with pytest.raises(ConfigError, match="reasons causally and without value embeddings"):
        make_reasoner(looped(), Shapes(6, 9, causal=False))
