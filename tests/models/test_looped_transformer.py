"""The whole model: what its start implies, its forward pass, budgets, and what seeds and methods share."""

from __future__ import annotations

import pytest
import torch

from looprepro import randomness
from looprepro.config.cell import Injection, Recurrence
from looprepro.config.cell import LoopedTransformer as Config
from looprepro.files.errors import LoopreproError
from looprepro.models.looped_transformer import LoopedTransformer, has_value_table

torch.set_num_threads(1)
ROWS, TIME, VOCABULARY, WIDTH = 5, 6, 11, 16
DEPTHS = torch.tensor([3, 1, 4, 4, 2])


def config(**keys: object) -> Config:
    layers = {"prelude_layers": 1, "core_layers": 2, "coda_layers": 2}
    return Config(**({"width": WIDTH, "heads": 2, "injection": Injection(method="conformal", groups=2)} | layers | keys))


def build(seed: int = 0, shake: float = 0.0, **keys: object) -> LoopedTransformer:
    """Float64; ``shake`` moves every parameter away from its start."""
    model = LoopedTransformer(config(**keys), VOCABULARY, TIME)
    model.initialise(seed)
    model = model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=randomness.parameter_generator(9, name), dtype=torch.float64)
            parameter.add_(shake * noise)
    return model


def inputs(model: LoopedTransformer) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.arange(ROWS)
    tokens = randomness.integers(0, randomness.WORDS, 0, rows, TIME, VOCABULARY)
    noise = randomness.truncated_normal(0, randomness.STATE, 0, rows, TIME * WIDTH)
    return tokens, noise.double().view(ROWS, TIME, WIDTH) * model.state_std()


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def reference(model: LoopedTransformer, tokens: torch.Tensor, depths: list[int], state: torch.Tensor) -> torch.Tensor:
    """Section 1.2 of the specification row by row, blocks taken as given (tests/models/test_blocks.py)."""
    injection = model.injection
    rope = model.rope[:TIME]
    logits = []
    for row, depth in enumerate(depths):
        ids = tokens[row : row + 1]

        def values(layer: int, ids: torch.Tensor = ids) -> torch.Tensor | None:
            table = dict(model.value_tables.items()).get(str(layer))
            return None if table is None else table.weight[ids]

        e = model.embedding.weight[ids]
        for i, block in enumerate(model.prelude):
            e = block(e, rope, values(i))
        e = rms(e, model.norm_prelude.weight)
        dt = torch.log1p(torch.exp(injection.rates.dt_bias)).repeat_interleave(WIDTH // injection.rates.dt_bias.numel())
        h = state[row : row + 1]
        for _ in range(depth):
            h = h @ injection.matrix().T + dt * (e @ injection.B.T)
            for i, block in enumerate(model.core):
                h = block(h, rope, values(len(model.prelude) + i))
        h = h @ model.readout.weight.T
        for i, block in enumerate(model.coda):
            h = block(h, rope, values(len(model.prelude) + len(model.core) + i))
        head = model.embedding.weight if model.head is None else model.head.weight
        logits.append(rms(h, model.norm_final.weight) @ head.T)
    return torch.cat(logits)


@pytest.mark.parametrize("keys", [{}, {"value_embeddings": True}, {"tied_head": False}, {"injection": Injection()}], ids=str)
def test_the_forward_pass_is_prelude_loop_c_coda_head(keys):
    model = build(shake=0.1, **keys)
    tokens, state = inputs(model)
    with torch.no_grad():
        found = model(tokens, DEPTHS, state)
        assert found.shape == (ROWS, TIME, VOCABULARY)
        assert torch.allclose(found, reference(model, tokens, DEPTHS.tolist(), state), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backprop_depth", [None, 2])
@pytest.mark.parametrize("method", ["diagonal", "pairwise", "cayley"])
def test_the_active_loop_equals_the_masked_loop_with_every_gradient(method, backprop_depth):
    injection = Injection() if method == "diagonal" else Injection(method="conformal", groups=2, chart=method)
    model = build(shake=0.1, injection=injection, value_embeddings=True, recurrence=Recurrence(backprop_depth=backprop_depth))
    tokens, state = inputs(model)

    def gradients() -> list[torch.Tensor]:
        logits = model(tokens, DEPTHS, state)
        return [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]

    active = gradients()
    model.masked_loop = True
    for a, b in zip(active, gradients(), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11 * float(b.abs().max()))


def test_truncated_gradient_differs_from_the_full_one_and_the_logits_do_not():
    results = {}
    for backprop_depth in (None, 1):
        model = build(shake=0.1, recurrence=Recurrence(backprop_depth=backprop_depth))
        tokens, state = inputs(model)
        logits = model(tokens, DEPTHS, state)
        results[backprop_depth] = (logits.detach(), torch.autograd.grad(logits.square().sum(), model.injection.B)[0])
    assert torch.allclose(results[None][0], results[1][0], rtol=1e-11)  # rows are grouped otherwise, so only to rounding
    assert not torch.allclose(results[None][1], results[1][1], rtol=1e-2)


def test_at_the_start_every_block_is_the_identity_and_the_loop_settles_at_its_fixed_point():
    model = build(injection=Injection())
    tokens, state = inputs(model)
    with torch.no_grad():
        e = rms(model.embedding.weight[tokens], model.norm_prelude.weight)
        settled = rms(1.4557503 * e @ model.readout.weight.T, model.norm_final.weight) @ model.embedding.weight.T
        assert torch.allclose(model(tokens, 80, state), settled, rtol=1e-6, atol=1e-7)


def test_the_first_backward_pass_reaches_exactly_the_parameters_that_parcae_lists():
    model = build(value_embeddings=True, injection=Injection())
    tokens, state = inputs(model)
    logits = model(tokens, DEPTHS, state)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}
    expected = {
        name
        for name, _ in model.named_parameters()
        if name.endswith(("attention.out.weight", "mlp.down.weight"))
        or name in ("embedding.weight", "readout.weight", "norm_prelude.weight", "norm_final.weight")
        or name.startswith("injection.")
    }
    assert reached == expected
    assert {"injection.B", "injection.rates.log_rate", "injection.rates.dt_bias"} <= reached


def test_the_start_has_parcaes_singular_values_zeros_and_ones():
    model = build(value_embeddings=True)
    block = model.core[0]
    for part in block.attention.qkv.weight.split(WIDTH):
        assert torch.allclose(torch.linalg.svdvals(part), torch.tensor(0.6325).double(), atol=5e-5)
    assert torch.allclose(torch.linalg.svdvals(block.mlp.up.weight), torch.tensor(1.2649).double(), atol=5e-5)
    assert torch.allclose(torch.linalg.svdvals(model.readout.weight), torch.tensor(0.6325).double(), atol=5e-5)
    for zero in (block.attention.out.weight, block.mlp.down.weight):
        assert not bool(zero.any())
    for one in (block.norm_1.weight, block.norm_2.weight, model.norm_prelude.weight, model.norm_final.weight):
        assert bool((one == 1).all())
    tables = torch.cat([table.weight.detach().flatten() for table in model.value_tables.values()])
    assert float(tables.std()) == pytest.approx(1.0, abs=0.1)
    gate = model.core[1].attention.gate.weight.detach()
    assert 0.2 < float(gate.abs().max()) <= WIDTH**-0.5


def test_methods_of_one_seed_share_every_weight_outside_the_injection_and_seeds_share_none():
    methods = [Injection(), Injection(method="conformal", groups=4), Injection(method="conformal", groups=1, chart="cayley")]
    first, *others = [build(seed=3, injection=injection).state_dict() for injection in methods]
    for other in others:
        shared = [name for name in other if not name.startswith("injection.")]
        assert len(shared) > 20
        assert all(torch.equal(first[name], other[name]) for name in shared)
    another = build(seed=4, injection=methods[0]).state_dict()
    drawn = [name for name in first if name.endswith(("embedding.weight", "qkv.weight", "up.weight", "readout.weight"))]
    assert len(drawn) == 12
    assert not any(torch.equal(first[name], another[name]) for name in drawn)


def test_initialising_again_gives_the_same_model_and_leaves_the_global_generator_alone():
    model = LoopedTransformer(config(), VOCABULARY, TIME)
    before = torch.get_rng_state()
    model.initialise(5)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    model.initialise(5)
    assert all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("chart", ["cayley", "householder"])
def test_the_orthogonal_factor_is_made_once_per_forward_pass_and_its_gradient_once(chart, monkeypatch):
    made, differentiated = [], []

    def counting(self: torch.nn.Module, dtype: torch.dtype | None = None) -> torch.Tensor:
        made.append(chart)
        q = plain(self, dtype)
        if q.requires_grad:
            q.register_hook(lambda gradient: differentiated.append(chart))
        return q

    model = build(injection=Injection(method="conformal", groups=2, chart=chart))
    plain = type(model.injection.chart).forward
    monkeypatch.setattr(type(model.injection.chart), "forward", counting)
    tokens, state = inputs(model)
    model(tokens, DEPTHS, state).square().sum().backward()
    assert (len(made), len(differentiated)) == (1, 1)
    assert model.injection.chart.get_parameter("skew" if chart == "cayley" else "dense").grad is not None
    with torch.no_grad():
        list(model.readouts(tokens, state, [1, 3, 6]))
    assert len(made) == 2


def test_one_pass_reads_out_every_budget_exactly_as_separate_passes_do():
    model = build(shake=0.1, value_embeddings=True)
    tokens, state = inputs(model)
    with torch.no_grad():
        read = dict(model.readouts(tokens, state, [1, 3, 7]))
        assert list(read) == [1, 3, 7]
        for budget, logits in read.items():
            assert torch.equal(logits, model(tokens, budget, state))
        with pytest.raises(ValueError, match="ascend"):
            list(model.readouts(tokens, state, [3, 1]))


@pytest.mark.parametrize("depths", [0, torch.tensor([1, 2, 0, 1, 1])], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_no_recurrent_step_is_a_clear_error(depths, masked):
    model = build()
    model.masked_loop = masked
    tokens, state = inputs(model)
    with pytest.raises(LoopreproError, match="T = 0: the loop needs at least one recurrent step"):
        model(tokens, depths, state)
    with pytest.raises(LoopreproError, match="T = 0"):
        list(model.readouts(tokens, state, [0, 2]))


def test_any_depth_works_at_evaluation_also_beyond_the_training_maximum():
    model = build(shake=0.05, recurrence=Recurrence(maximum=4, mean=3.0))
    tokens, state = inputs(model)
    with torch.no_grad():
        for budget in (1, 4, 50):
            assert bool(torch.isfinite(model(tokens, budget, state)).all())


def test_inputs_that_do_not_fit_are_refused():
    model = build()
    tokens, state = inputs(model)
    with pytest.raises(LoopreproError, match="12 positions, but the model was built for 6"):
        model(tokens.repeat(1, 2), 1, state.repeat(1, 2, 1))
    with pytest.raises(ValueError, match="does not fit"):
        model(tokens, 1, state[:, :, :4])
    with pytest.raises(ValueError, match="2 depths for 5 rows"):
        model(tokens, torch.tensor([1, 2]), state)


def test_logits_are_float32_under_bfloat16_autocast():
    model = LoopedTransformer(config(value_embeddings=True), VOCABULARY, TIME)
    model.initialise(0)
    tokens, state = inputs(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(tokens, DEPTHS, state.float())
    assert logits.dtype == torch.float32
    exact = model(tokens, DEPTHS, state.float())
    assert torch.allclose(logits, exact, atol=0.05)
    assert float(exact.detach().std()) == pytest.approx(0.63, abs=0.1)  # the specification's logit deviation at the start


@pytest.mark.parametrize(("layers", "tables"), [(6, [1, 3, 5]), (5, [0, 2, 4]), (12, [1, 3, 5, 7, 9, 11])])
def test_value_tables_stand_in_every_second_layer_back_from_the_last(layers, tables):
    assert [layer for layer in range(layers) if has_value_table(layer, layers)] == tables


def test_a_value_table_and_its_gate_exist_together_also_where_parcaes_two_rules_disagree():
    model = build(prelude_layers=1, core_layers=1, coda_layers=1, value_embeddings=True)
    blocks = [*model.prelude, *model.core, *model.coda]
    gated = {str(i) for i, block in enumerate(blocks) if block.attention.gate is not None}
    assert gated == set(model.value_tables) == {"0", "2"}


def test_the_rotary_table_is_not_part_of_a_checkpoint():
    assert not any("rope" in name for name in build().state_dict())


@pytest.mark.parametrize("backprop_depth", [None, 2])
def test_checkpointed_steps_give_the_same_numbers_and_hold_less(backprop_depth):
    recurrence = Recurrence(mean=3.0, maximum=8, backprop_depth=backprop_depth)
    model = build(shake=0.1, value_embeddings=True, recurrence=recurrence)
    tokens, state = inputs(model)
    found = []
    for checkpointed in (False, True):
        model.checkpoint_steps = checkpointed
        model.zero_grad()
        held: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, held=held: held.append(t.nbytes) or t, lambda t: t):
            logits = model(tokens, DEPTHS, state)
        logits.logsumexp(-1).square().sum().backward()
        found.append((logits, {name: p.grad.clone() for name, p in model.named_parameters()}, sum(held)))
    plain, checkpointed = found
    assert torch.equal(plain[0], checkpointed[0])
    assert all(torch.allclose(plain[1][name], checkpointed[1][name], rtol=1e-12, atol=1e-14) for name in plain[1])
    assert checkpointed[2] < 0.7 * plain[2]


def test_the_relative_change_is_the_length_of_the_last_step_over_that_of_the_state():
    model = build(core_layers=1)  # blocks are the identity at the start: x_{t+1} = A x_t + dt e
    with torch.no_grad():
        tokens, state = inputs(model)
        e = model.norm_prelude(model.embedding(tokens))
        before = after = state
        op = model.injection.operator()
        for _ in range(3):
            before, after = after, after @ model.injection.matrix().T + e * op.dt
    expected = (after - before).flatten(1).norm(dim=1) / after.flatten(1).norm(dim=1)
    assert torch.allclose(model.relative_change(tokens, state, 3), expected, rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_documents_in_one_row_do_not_see_each_other(values, masked):
    """Two documents side by side give what each gives alone, at its own positions (RoPE only sees differences)."""
    model = build(shake=0.3, value_embeddings=values)
    model.masked_loop = masked
    tokens, state = inputs(model)
    documents = torch.zeros_like(tokens)
    documents[:, 2:] = 1
    together = model(tokens, DEPTHS, state, documents)
    first = model(tokens[:, :2], DEPTHS, state[:, :2])
    second = model(tokens[:, 2:], DEPTHS, state[:, 2:])
    assert torch.allclose(together, torch.cat([first, second], dim=1), rtol=1e-6, atol=1e-7)
    assert not torch.allclose(together, model(tokens, DEPTHS, state), atol=1e-3)
    read = dict(model.readouts(tokens, state, [2], documents))
    assert torch.allclose(read[2], model(tokens, 2, state, documents))
