"""Sizes, memory and cost of the language models against the models themselves and the published counts."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from looprepro.config import language_formulas as formulas
from looprepro.config.cell import Cell, Injection, LanguageEvaluation, LanguageTask, LanguageTraining, Recurrence
from looprepro.config.cell import LoopedTransformer as Config
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.planning import expand, load_sweep
from looprepro.training.muon import MuonAdamW

torch.set_num_threads(1)
SIZES = {"small": 61_125_120, "medium": 144_323_136, "large": 388_003_328}
H100_BYTES = 80e9


def meta(cell: Cell) -> LoopedTransformer:
    with torch.device("meta"):
        return LoopedTransformer(cell.model, cell.task.vocabulary, 16)


def paper(sweep: str) -> dict[str, Cell]:
    return {
        f"{planned.placements[0].axes.get('size', 'small')}-{planned.placements[0].axes['method']}": planned.cell
        for planned in expand(load_sweep(sweep), "paper").cells
    }


@pytest.mark.parametrize("size", SIZES)
def test_the_published_sizes_have_exactly_the_published_parameters(size: str) -> None:
    cell = paper("table4")[f"{size}-diagonal"]
    assert formulas.model_parameters(cell) == SIZES[size]
    assert sum(p.numel() for p in meta(cell).parameters()) == SIZES[size]


@pytest.mark.parametrize("size", SIZES)
def test_state_is_what_the_model_its_gradients_and_the_optimiser_hold(size: str) -> None:
    cell = paper("table4")[f"{size}-G=2"]
    with torch.device("meta"):
        model = LoopedTransformer(cell.model, cell.task.vocabulary, 16)
        optimizer = MuonAdamW(dict(model.named_parameters()))
    weights = sum(p.nbytes for p in model.parameters())
    held = sum(t.nbytes for name, t in optimizer.tensors().items() if not name.startswith("step."))
    assert formulas.state_bytes(cell) == 2 * weights + held
    assert dict(optimizer.shapes) == formulas.muon_matrices(cell.model)


@pytest.mark.parametrize("sweep", ["table4", "table8"])
def test_every_paper_cell_fits_an_h100(sweep: str) -> None:
    for name, cell in paper(sweep).items():
        assert formulas.state_bytes(cell) < formulas.memory_bytes(cell) < H100_BYTES, name


def small(backprop_depth: int | None = 2, **training: object) -> Cell:
    """Fixed depth 3, so that a real step can be counted."""
    return Cell(
        task=LanguageTask(vocabulary=300, sequence=16),
        model=Config(
            width=64,
            heads=2,
            prelude_layers=1,
            core_layers=1,
            coda_layers=1,
            value_embeddings=True,
            injection=Injection(method="conformal", groups=2),
            recurrence=Recurrence(scheme="fixed", maximum=3, mean=3.0, backprop_depth=backprop_depth),
        ),
        training=LanguageTraining.model_validate(
            {"tokens": 640, "batch_tokens": 64, "micro_batch": 4, "dtype": "float32"} | training
        ),
        seed=0,
    )


def loss_of(cell: Cell) -> torch.Tensor:
    model = LoopedTransformer(cell.model, 300, 16)
    model.initialise(0)
    model.checkpoint_steps = cell.training.activation_checkpointing == "per-iteration"
    tokens = torch.zeros(4, 16, dtype=torch.int64)
    logits = model(tokens, 3, torch.zeros(4, 16, 64))
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


@pytest.mark.parametrize("checkpointing", ["none", "per-iteration"])
@pytest.mark.parametrize("backprop_depth", [None, 2])
def test_training_flops_are_those_that_torch_counts(backprop_depth: int | None, checkpointing: str) -> None:
    cell = small(backprop_depth, activation_checkpointing=checkpointing)
    with FlopCounterMode(display=False) as counter:
        loss_of(cell).backward()
    without_muon = formulas.train_flops_per_step(cell) - formulas.muon_flops(cell.model)
    # A step that is computed again stops before its last product, the MLP's way down.
    assert counter.get_total_flops() == pytest.approx(without_muon, rel=0.06 if checkpointing == "none" else 0.08)


def counted_readouts(cell: Cell, rows: int, time: int, budgets: list[int]) -> int:
    """What torch counts of ``rows`` sequences read out at ``budgets`` in one pass."""
    model = LoopedTransformer(cell.model, 300, 16)
    model.initialise(0)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        list(model.readouts(torch.zeros(rows, time, dtype=torch.int64), torch.zeros(rows, time, 64), budgets))
    return counter.get_total_flops()


def test_measuring_costs_a_pass_of_every_row_document_and_passage_for_each_draw() -> None:
    cell = small()
    wanted = [
        LanguageEvaluation(
            T=budget, metrics=("geometry", "last_word", "perplexity"), items=3, documents=2, questions=4, draws=2
        )
        for budget in (2, 5)
    ]
    whole = counted_readouts(cell, 3 + 2 + 4, 16, [2, 5])  # a passage is cut to a row's 16 tokens
    assert formulas.evaluation_flops(cell, wanted) == pytest.approx(2 * whole, rel=0.06)
    alone = [LanguageEvaluation(T=5, metrics=("perplexity",), items=3, documents=2)]
    assert formulas.evaluation_flops(cell, alone) == pytest.approx(counted_readouts(cell, 5, 16, [5]), rel=0.06)
    asked = [LanguageEvaluation(T=5, metrics=("lambada",), questions=7)]
    assert formulas.evaluation_flops(cell, asked) == pytest.approx(counted_readouts(cell, 7, 16, [5]), rel=0.06)
    assert formulas.evaluation_flops(cell, [LanguageEvaluation(T=5, metrics=("geometry",))]) == 0.0


def test_muon_flops_are_those_that_torch_counts() -> None:
    model = meta(small())
    with torch.device("meta"):
        optimizer = MuonAdamW({name: torch.zeros_like(p) for name, p in model.named_parameters()})
        for p in optimizer.parameters.values():
            p.grad = torch.zeros_like(p)
        from looprepro.training.muon import Rates

        with FlopCounterMode(display=False) as counter:
            optimizer.step(Rates(1e-3, 1e-3, 0.9, 0.1))
    assert counter.get_total_flops() == pytest.approx(formulas.muon_flops(small().model))


@pytest.mark.parametrize("checkpointing", ["none", "per-iteration"])
@pytest.mark.parametrize("backprop_depth", [None, 2])
def test_the_activation_estimate_is_near_what_backward_holds(backprop_depth: int | None, checkpointing: str) -> None:
    cell = small(backprop_depth, activation_checkpointing=checkpointing)
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            held.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(cell)
    assert loss.requires_grad
    measured = sum(held.values())
    estimate = formulas.activation_bytes(cell)
    if checkpointing == "per-iteration":  # one whole step more than what is kept between steps
        estimate -= 4 * 4 * 16 * (14 * 64 + 2 * 256)
    logits = formulas.FLOAT_BYTES * 4 * 16 * 300  # their gradient, which the forward pass does not keep
    assert estimate - logits == pytest.approx(measured, rel=0.35)


def test_the_budget_of_table_4_is_eighty_tokens_a_parameter_and_of_table_8_twenty() -> None:
    assert {round(formulas.tokens_per_parameter(cell), 1) for cell in paper("table4").values()} == {80.0}
    assert {round(formulas.tokens_per_parameter(cell), 1) for cell in paper("table8").values()} == {20.0}


def test_the_whole_of_table_4_costs_what_the_back_of_an_envelope_says() -> None:
    """140M: 6 FLOP per parameter outside tables and core (prelude, coda, head, B, C), core 8 steps, 4 of them with gradient."""
    cell = paper("table4")["medium-diagonal"]
    layer, head, square = 12 * 768**2, 768 * 32768, 768**2
    attention = 4 * 768 * 1024.5  # both products of a layer and position, causal half
    per_token = 6 * (4 * layer + head + 2 * square) + 3 * 4 * attention
    per_token += (4.0595 * 1 + 3.9408 * 3) * 2 * (2 * layer + attention)
    assert formulas.train_flops(cell) == pytest.approx(22_021 * 524_288 * per_token, rel=0.02)
