"""Blocks and recurrent steps with a hand-written backward pass, for one CPU thread: what the plain modules compute, faster.

Matrix products stay torch's. What stands between them runs in looprepro/native/block.c, one pass over memory each, and the
backward pass recomputes what is cheap: norms, relu^2, attention from q, k, v. Pure functions of tensors with any leading
dimensions, ``[..., rows, time, width]``; weights are ``[out, in]`` or, for a stack of models, ``[stack, out, in]`` with x
``[stack, rows, time, width]``. The plain modules stay the oracle. Second derivatives are not defined.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from looprepro.native.library import library

Kind = Literal["plain", "fused"]

MAX_TIME = 128
"""Positions up to which the attention of block.c is used: it takes all keys of a row at once, in the cache."""


class BlockWeights(NamedTuple):
    """The six parameters of a block, in the order in which it uses them."""

    norm_1: Tensor
    qkv: Tensor
    out: Tensor
    norm_2: Tensor
    up: Tensor
    down: Tensor


_preferred: Kind = "plain"


def prefer(kind: Kind) -> None:
    """The kind for models that this process makes without being told (evaluation); a worker sets it, as it sets threads."""
    global _preferred
    _preferred = kind


def preferred() -> Kind:
    """Set by :func:`prefer`; plain until then."""
    return _preferred


def use(model: nn.Module, kind: Kind) -> Kind:
    """Give every part of ``model`` that has a fused form that form, or its plain one. Returns the kind that is in force: plain
    where this machine has no C compiler (one warning) or the model is not on a CPU."""
    first = next(model.parameters())
    if kind == "fused" and not (_typed(first) and library(first.element_size()) is not None):
        kind = "plain"
    for part in model.modules():
        if "fused" in vars(part):
            vars(part)["fused"] = kind == "fused"
    return kind


def fits(x: Tensor, weight: Tensor, time: int = 1) -> bool:
    """Whether the fused form can take these tensors; where not, the plain form does."""
    return (
        time <= MAX_TIME
        and _typed(x)
        and x.dtype == weight.dtype
        and not torch.is_autocast_enabled(x.device.type)
        and not torch.compiler.is_compiling()
    )


def _typed(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def _code(x: Tensor) -> ctypes.CDLL:
    found = library(x.element_size())
    assert found is not None, "use() sees to it"
    return found


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _stack(weight: Tensor) -> int:
    """Models in the stack; a norm's weight is ``[width]`` or ``[stack, width]``."""
    return weight.shape[0] if weight.dim() == 2 else 1


# RMSNorm ------------------------------------------------------------------------------------------------------------


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out, stack, width = torch.empty_like(x), _stack(weight), x.shape[-1]
    _code(x).rms_norm(_at(x), _at(weight), _at(out), stack, x.numel() // (stack * width), width, eps)
    return out


def _norm_backward(
    x: Tensor, weight: Tensor, grad: Tensor, eps: float, residual: Tensor | None = None, normed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(grad_x with ``residual`` added, grad_weight); fills ``normed``."""
    grad_x, grad_weight, partial = torch.empty_like(x), torch.zeros_like(weight), weight.new_empty(x.shape[-1])
    stack, width = _stack(weight), x.shape[-1]
    _code(x).rms_norm_backward(
        *map(_at, (x, weight, grad, residual, grad_x, normed, grad_weight, partial)),
        *(stack, x.numel() // (stack * width), width, eps),
    )
    return grad_x, grad_weight


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _norm(x, weight, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return *_norm_backward(x, weight, grad.contiguous(), ctx.eps), None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) times ``weight`` (``[width]``, or ``[stack, width]`` with x ``[stack, ...]``)."""
    return _RMSNorm.apply(x, weight, eps)


# Block --------------------------------------------------------------------------------------------------------------


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T: ``[n, in]`` by ``[out, in]``, or both with a stack in front."""
    return torch.mm(x, weight.t()) if weight.dim() == 2 else torch.bmm(x, weight.mT)


def _add_product(to: Tensor, x: Tensor, weight: Tensor, alpha: float = 1.0) -> Tensor:
    """``to`` + alpha x W^T, a new tensor."""
    return torch.addmm(to, x, weight.t(), alpha=alpha) if weight.dim() == 2 else torch.baddbmm(to, x, weight.mT, alpha=alpha)


def _back_product(grad: Tensor, weight: Tensor) -> Tensor:
    """grad W."""
    return torch.mm(grad, weight) if weight.dim() == 2 else torch.bmm(grad, weight)


class _Block(torch.autograd.Function):
    """Saved per position: x, the state between attention and MLP, the attention's output, q, k, v and the hidden layer before
    relu^2: (6 width + hidden) numbers, besides the inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rope: Tensor, heads: int, norm_eps: float, qk_norm_eps: float, *given: Tensor) -> Tensor:
        w = BlockWeights(*(weight.contiguous() for weight in given))
        rope = rope.contiguous()
        *_, time, width = x.shape
        stack = () if w.qkv.dim() == 2 else (w.qkv.shape[0],)
        flat = x.reshape(*stack, -1, width).contiguous()
        code, rows, head = _code(x), x.numel() // (time * width), width // heads
        qkv = _product(_norm(flat, w.norm_1, norm_eps), w.qkv)
        mixed = torch.empty_like(flat)
        failed = code.attention(_at(qkv), _at(rope), _at(mixed), rows, time, heads, head, qk_norm_eps)
        if failed:
            raise MemoryError("no memory for one row of attention")
        between = _add_product(flat, mixed, w.out)
        hidden = _product(_norm(between, w.norm_2, norm_eps), w.up)
        squared = torch.empty_like(hidden)
        code.relu_square(_at(hidden), _at(squared), hidden.numel())
        ctx.save_for_backward(flat, rope, qkv, mixed, between, hidden, *w)
        ctx.sizes = (rows, time, heads, head)
        ctx.eps = (norm_eps, qk_norm_eps)
        return _add_product(between, squared, w.down, alpha=0.5).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        flat, rope, qkv, mixed, between, hidden, *weights = ctx.saved_tensors
        w = BlockWeights(*weights)
        norm_eps, qk_norm_eps = ctx.eps
        code = _code(flat)
        grad = grad_out.reshape(flat.shape).contiguous()
        # MLP: y = between + 0.5 down(relu(up(n))^2), so the half and the derivative's 2 cancel in grad_hidden.
        grad_hidden, squared = _back_product(grad, w.down), torch.empty_like(hidden)
        code.relu_square_backward(_at(hidden), _at(grad_hidden), _at(squared), hidden.numel(), 1.0)
        grad_down = _product(grad.mT, squared.mT).mul_(0.5)
        normed = torch.empty_like(flat)
        grad_between, grad_norm_2 = _norm_backward(
            between, w.norm_2, _back_product(grad_hidden, w.up), norm_eps, residual=grad, normed=normed
        )
        grad_up = _product(normed.mT, grad_hidden.mT).mT  # the wide factor on the right: 6 percent faster with MKL
        # Attention.
        grad_mixed, grad_qkv = _back_product(grad_between, w.out), torch.empty_like(qkv)
        grad_attention_out = _product(grad_between.mT, mixed.mT)
        rows, time, heads, head = ctx.sizes
        failed = code.attention_backward(*map(_at, (qkv, rope, grad_mixed, grad_qkv)), rows, time, heads, head, qk_norm_eps)
        if failed:
            raise MemoryError("no memory for one row of attention")
        grad_x, grad_norm_1 = _norm_backward(
            flat, w.norm_1, _back_product(grad_qkv, w.qkv), norm_eps, residual=grad_between, normed=normed
        )
        grad_in = _product(normed.mT, grad_qkv.mT).mT
        grads = BlockWeights(grad_norm_1, grad_in, grad_attention_out, grad_norm_2, grad_up, grad_down)
        return grad_x.view(grad_out.shape), None, None, None, None, *grads


def block(x: Tensor, rope: Tensor, weights: BlockWeights, heads: int, norm_eps: float, qk_norm_eps: float) -> Tensor:
    """x + attention(norm(x)), then + 0.5 down(relu(up(norm(x)))^2): models/blocks.py's Block without a value gate.

    ``rope``: ``[time, 1, 1, head_width / 2, 2]`` in x's type; at most :data:`MAX_TIME` positions.
    """
    if rope.dtype != x.dtype or rope.numel() * heads != x.shape[-2] * x.shape[-1]:  # C would read past its end
        raise ValueError(f"rope {rope.dtype} {tuple(rope.shape)} does not fit x {x.dtype} {tuple(x.shape)} with {heads} heads")
    return _Block.apply(x, rope, heads, norm_eps, qk_norm_eps, *weights)


# Recurrent steps ----------------------------------------------------------------------------------------------------


class _Step(torch.autograd.Function):
    """out = A h + drive with A diagonal or made of planes; ``factor`` holds its numbers, one per coordinate."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, factor: Tensor, drive: Tensor, name: str, stack: int) -> Tensor:
        h, drive, factor = h.contiguous(), drive.contiguous(), factor.contiguous()
        out, width = torch.empty_like(h), h.shape[-1]
        rows = h.numel() // (stack * width)
        getattr(_code(h), name)(*map(_at, (h, factor, drive, out)), stack, rows, width)
        ctx.save_for_backward(h, factor)
        ctx.name, ctx.sizes = name, (stack, rows, width)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, factor = ctx.saved_tensors
        grad = grad.contiguous()
        grad_h, grad_factor, partial = torch.empty_like(h), torch.zeros_like(factor), h.new_empty(h.shape[-1])
        function = getattr(_code(h), f"{ctx.name}_backward")
        function(*map(_at, (h, factor, grad, grad_h, grad_factor, partial)), *ctx.sizes)
        return grad_h, grad_factor, grad, None, None


def diagonal_step(h: Tensor, decay: Tensor, drive: Tensor) -> Tensor:
    """decay h + drive; ``decay`` is ``[width]`` or ``[stack, 1, 1, width]`` with h ``[stack, rows, time, width]``."""
    return _step(h, decay, drive, "diagonal_step")


def planar_step(h: Tensor, multiplier: Tensor, drive: Tensor) -> Tensor:
    """Plane i of h turned and scaled by ``multiplier[..., i, :]`` = c (cos, sin), plus drive; ``multiplier`` is
    ``[width / 2, 2]`` or ``[stack, 1, 1, width / 2, 2]``."""
    return _step(h, multiplier, drive, "planar_step")


def _step(h: Tensor, factor: Tensor, drive: Tensor, name: str) -> Tensor:
    stack, rest = divmod(factor.numel(), h.shape[-1])
    fits_h = drive.dtype == factor.dtype == h.dtype and rest == 0 and (stack == 1 or (stack > 1 and stack == h.shape[0]))
    if not fits_h:  # C would read past an end
        raise ValueError(f"{name}: {factor.dtype} {tuple(factor.shape)} and drive {drive.dtype} do not fit {tuple(h.shape)}")
    return _Step.apply(h, factor, drive if drive.shape == h.shape else drive.expand_as(h), name, stack)
