"""The fused kernels against the plain modules: values, every gradient, stacks, and what happens without a compiler."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from looprepro.config.cell import Injection, Recurrence
from looprepro.config.cell import LoopedTransformer as Config
from looprepro.models import kernels
from looprepro.models.blocks import Block, RMSNorm, rope_table
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.native import library as native

pytestmark = pytest.mark.skipif(native.find_compiler() is None, reason="the fused kernels need a C compiler")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-14}
TYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "float64"])


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """To a few units in the last place of the largest entry."""
    found, expected = found.detach(), expected.detach()
    bound = TOLERANCE[expected.dtype] * max(1.0, float(expected.abs().max()))
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= bound


def both(module: torch.nn.Module, *inputs: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(output, gradients of the inputs and parameters), plain and fused."""
    results = []
    for kind in ("plain", "fused"):
        assert kernels.use(module, kind) == kind
        given = [x.clone().requires_grad_() for x in inputs]
        out = module(*given)
        wanted = [*given, *module.parameters()]
        weights = draw(*out.shape, seed=9).to(out.dtype)
        results.append([out.detach(), *torch.autograd.grad((out * weights).sum(), wanted)])
    return results[0], results[1]


def scrambled(module: torch.nn.Module) -> torch.nn.Module:
    """Weights of which none is zero or one."""
    for seed, parameter in enumerate(module.parameters()):
        with torch.no_grad():
            scale = 1.0 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
            parameter.copy_(draw(*parameter.shape, seed=seed + 1) * scale)
    return module


# Head widths below, at and above a vector register; times around its multiples and up to the limit.
SHAPES = [(8, 2, 3), (64, 4, 33), (48, 2, 17), (64, 2, 16), (128, 2, 40), (16, 2, 1), (96, 1, 5), (32, 2, kernels.MAX_TIME)]


@TYPES
@pytest.mark.parametrize(("width", "heads", "time"), SHAPES)
def test_a_fused_block_computes_what_the_plain_one_does_with_every_gradient(width, heads, time, dtype):
    block = scrambled(Block(width, heads, 3 * width, 1e-5, 1.19e-7)).to(dtype)
    rope = rope_table(time, width // heads, 50_000.0).to(dtype)
    module = WithRope(block, rope)
    for found, expected in zip(*reversed(both(module, draw(3, time, width).to(dtype))), strict=True):
        assert_close(found, expected)


class WithRope(torch.nn.Module):
    """A block as a module of one input."""

    def __init__(self, block: Block, rope: torch.Tensor) -> None:
        super().__init__()
        self.block, self.rope = block, rope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x, self.rope)


@TYPES
def test_the_fused_norm(dtype):
    for found, expected in zip(*both(scrambled(RMSNorm(24, 1e-5)).to(dtype), 1e-2 * draw(2, 70, 24).to(dtype)), strict=True):
        assert_close(found, expected)


@TYPES
@pytest.mark.parametrize("kind", ["diagonal", "planar"])
@pytest.mark.parametrize("stack", [1, 3])
def test_the_fused_steps_and_their_stacks(kind, stack, dtype):
    h, drive = (draw(stack, 5, 7, 12, seed=seed).to(dtype) for seed in (1, 2))
    shape = (stack, 12) if kind == "diagonal" else (stack, 6, 2)
    factor = draw(*shape, seed=3).to(dtype)
    leaves = [x.clone().requires_grad_() for x in (h, factor, drive)]
    found = (kernels.diagonal_step if kind == "diagonal" else kernels.planar_step)(*leaves)
    plain = [x.clone().requires_grad_() for x in (h, factor, drive)]
    if kind == "diagonal":
        expected = plain[1][:, None, None] * plain[0] + plain[2]
    else:
        turned = torch.view_as_complex(plain[0].unflatten(-1, (6, 2))) * torch.view_as_complex(plain[1])[:, None, None]
        expected = torch.view_as_real(turned).flatten(-2) + plain[2]
    assert_close(found, expected)
    for mine, other in zip(
        torch.autograd.grad(found.square().sum(), leaves), torch.autograd.grad(expected.square().sum(), plain), strict=True
    ):
        assert_close(mine, other)


def test_tensors_that_do_not_fit_do_not_reach_c():
    h, decay, width = draw(2, 3, 12), draw(12), 12
    drive = draw(width).requires_grad_()
    kernels.diagonal_step(h, decay, drive).sum().backward()  # a drive that an own operator left to broadcasting
    assert_close(kernels.diagonal_step(h, decay, drive), decay * h + drive)
    assert_close(drive.grad, torch.full((width,), 6.0).double())
    for wrong in ((h, draw(1), drive), (h, draw(36), drive), (h, decay.float(), drive), (h, decay, drive.float())):
        with pytest.raises(ValueError, match="do not fit"):
            kernels.diagonal_step(*wrong)
    block = Block(16, 2, 64, 1e-5, 1.19e-7)
    for rope in (rope_table(4, 8, 50_000.0), rope_table(5, 8, 50_000.0).double()):
        with pytest.raises(ValueError, match="does not fit"):
            kernels.block(draw(1, 5, 16).float(), rope, weights_of(block), 2, 1e-5, 1.19e-7)


def test_a_stacked_block_is_its_members_blocks():
    blocks = [scrambled(Block(16, 2, 64, 1e-5, 1.19e-7)).double() for _ in range(2)]
    with torch.no_grad():
        for parameter in blocks[1].parameters():
            parameter.mul_(0.7)
    rope = rope_table(5, 8, 50_000.0).double()
    x = draw(2, 3, 5, 16)
    stacked = kernels.BlockWeights(*(torch.stack(pair) for pair in zip(*map(weights_of, blocks), strict=True)))
    found = kernels.block(x, rope, stacked, 2, 1e-5, 1.19e-7)
    for member in range(2):
        assert_close(found[member], blocks[member](x[member], rope))


def weights_of(block: Block) -> kernels.BlockWeights:
    attention, mlp = block.attention, block.mlp
    return kernels.BlockWeights(
        block.norm_1.weight, attention.qkv.weight, attention.out.weight, block.norm_2.weight, mlp.up.weight, mlp.down.weight
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(value):
    block = scrambled(Block(16, 2, 64, 1e-5, 1.19e-7))
    assert kernels.use(block, "fused") == "fused"
    x = draw(2, 5, 16).float()
    x[0, 2, 3] = value
    found = block(x, rope_table(5, 8, 50_000.0))
    assert found[1].isfinite().all()
    assert found[0, 2:].isnan().any(dim=-1).all()  # that position and those that attend to it


@pytest.mark.parametrize("method", ["diagonal", "conformal"])
def test_a_whole_model_with_mixed_depths(method, monkeypatch):
    called = Counter()
    step = "diagonal_step" if method == "diagonal" else "planar_step"

    def count(name, real):
        monkeypatch.setattr(kernels, name, lambda *given: called.update([name]) or real(*given))

    for name in ("block", "rms_norm", step):
        count(name, getattr(kernels, name))
    injection = Injection(method=method, groups=None if method == "diagonal" else 2)
    config = Config(width=16, heads=2, prelude_layers=1, core_layers=1, coda_layers=1, injection=injection)
    model = LoopedTransformer(config, 7, 6)
    model.initialise(0)
    scrambled(model.core)
    model = model.double()
    tokens = torch.arange(24).view(4, 6) % 7
    results = []
    for kind in ("plain", "fused"):
        assert kernels.use(model, kind) == kind
        assert not called
        logits = model(tokens, torch.tensor([2, 5, 1, 3]), draw(4, 6, 16))
        parameters = [p for p in model.parameters() if p.requires_grad]
        results.append([logits.detach(), *torch.autograd.grad(logits.square().sum(), parameters, materialize_grads=True)])
    assert called == {"block": 1 + 5 + 1, "rms_norm": 2, step: 5}
    for expected, found in zip(*results, strict=True):
        bound = 1e-11 * max(1.0, float(expected.abs().max()))
        assert float((found - expected).abs().max()) <= bound


def test_layers_with_value_gates_and_long_texts_take_the_plain_code(monkeypatch):
    called = []
    monkeypatch.setattr(kernels, "block", lambda *_: called.append(1))
    gated = Block(16, 2, 64, 1e-5, 1.19e-7, value_gate=True)
    kernels.use(gated, "fused")
    gated(draw(1, 3, 16).float(), rope_table(3, 8, 50_000.0), draw(1, 3, 16).float())
    plain = Block(16, 2, 64, 1e-5, 1.19e-7)
    kernels.use(plain, "fused")
    time = kernels.MAX_TIME + 1
    plain(draw(1, time, 16).float(), rope_table(time, 8, 50_000.0))
    with torch.autocast("cpu", torch.bfloat16):
        plain(draw(1, 3, 16).float(), rope_table(3, 8, 50_000.0))
    assert not called
    plain(draw(1, 3, 16).float(), rope_table(3, 8, 50_000.0))
    assert called


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    native.library.cache_clear()
    native._warn_once.cache_clear()
    monkeypatch.setenv("CC", "/nowhere/cc")
    yield
    native.library.cache_clear()
    native._warn_once.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_plain_code_runs_after_one_warning():
    block = scrambled(Block(16, 2, 64, 1e-5, 1.19e-7))
    x, rope = draw(2, 5, 16).float(), rope_table(5, 8, 50_000.0)
    expected = block(x, rope)
    with pytest.warns(RuntimeWarning, match="the plain code runs instead: /nowhere/cc"):
        assert kernels.use(block, "fused") == "plain"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.use(block, "fused") == "plain"
    assert torch.equal(block(x, rope), expected)


def test_the_first_use_compiles_and_the_next_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran = []
    plain_run = native._run
    monkeypatch.setattr(native, "_run", lambda command: ran.append(command) or plain_run(command))
    first = native.compiled(4)
    assert first.parent == tmp_path / "looprepro"
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    assert native.compiled(4) == first
    assert sum("--version" not in command for command in ran) == 1


def pretended(command: list[str]) -> str:
    """A compiler whose libraries are seven bytes."""
    if "-o" in command:
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
    return "cc 1.0"


def test_a_library_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "_run", pretended)
    happened = []

    def synced(descriptor: int) -> None:
        happened.append(("synced", os.fstat(descriptor).st_size, os.fstat(descriptor).st_ino))

    rename = os.replace
    monkeypatch.setattr(native.os, "fsync", synced)
    monkeypatch.setattr(native.os, "replace", lambda old, new: (happened.append("renamed"), rename(old, new)))
    library = native.compiled(4)
    assert happened == [("synced", 7, library.stat().st_ino), "renamed"]


def test_where_the_cache_folder_takes_no_file_there_is_no_library(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(native.os, "replace", full)
    monkeypatch.setattr(native, "_run", pretended)
    with pytest.raises(native.CannotCompile, match="No space left"):
        native.compiled(4)
    assert not list((tmp_path / "looprepro").iterdir())


def test_without_a_home_folder_the_library_lies_in_a_temporary_one_of_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(native.tempfile, "gettempdir", lambda: str(tmp_path))

    def homeless(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert native.cache_folder() == tmp_path / f"looprepro-{os.getuid()}"


def test_a_library_of_another_cpu_is_another_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "_run", pretended)
    here = native.compiled(4)
    monkeypatch.setattr(native, "_cpu", lambda: "another")
    assert native.compiled(4) != here


def test_a_compiled_loop_sees_few_numbers_of_rows_and_gives_the_same_states():
    model = LoopedTransformer(
        Config(width=8, heads=2, prelude_layers=0, core_layers=1, coda_layers=0, recurrence=Recurrence(backprop_depth=2)), 5, 3
    )
    model.initialise(0)
    scrambled(model.core)
    model = model.double()
    tokens, state = torch.arange(30).view(10, 3) % 5, draw(10, 3, 8)
    depths = torch.tensor([1, 7, 2, 2, 5, 3, 9, 1, 4, 6])
    results, seen = [], set()
    plain_pass = model._core_pass

    def watched(h, *others):
        seen.add(h.shape[0])
        return plain_pass(h, *others)

    for compiled in (False, True):
        model._compiled, model._core_pass = compiled, watched if compiled else plain_pass
        logits = model(tokens, depths, state)
        gradients = torch.autograd.grad(logits.square().sum(), [p for p in model.parameters() if p.requires_grad])
        results.append([logits.detach(), *gradients])
    assert seen <= {3, 6, 9, 10}
    for expected, found in zip(*results, strict=True):
        assert_close(found, expected)
