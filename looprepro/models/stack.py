"""A stack of looped transformers that differ in their weights alone: one forward call serves all of them.

Every parameter gets a leading stack dimension and keeps its name; buffers, which no seed changes, stay shared. Tokens and
states are then ``[stack, rows, time]`` and ``[stack, rows, time, width]``, logits ``[stack, rows, time, vocabulary]``, and
the depths of the rows are common to the members. No value of a member depends on another member's.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from looprepro.models import kernels
from looprepro.models.injections import Diagonal, Injection, PairwiseConformal
from looprepro.models.looped_transformer import LoopedTransformer


def stacked(models: Sequence[LoopedTransformer]) -> LoopedTransformer:
    """One model that computes what ``models`` compute, in their order. Their weights are copied."""
    stack = copy.deepcopy(models[0])
    for name, parameter in models[0].named_parameters():
        joined = torch.stack([model.get_parameter(name).detach() for model in models])
        parent, _, leaf = name.rpartition(".")
        setattr(stack.get_submodule(parent), leaf, nn.Parameter(joined, requires_grad=parameter.requires_grad))
    stack.add_module("injection", StackedInjection(models[0].injection, stack.injection))
    stack.plain_core()
    return stack


class StackedInjection(nn.Module):
    """What :class:`~looprepro.models.injections.Injection` does, over a leading stack dimension, by torch.func.vmap.

    So that an injection is written for one model only. The operator of the stack is the members' operators, each of its
    tensors with a leading stack dimension.
    """

    def __init__(self, one: Injection, joined: Injection) -> None:
        """``one``: the injection of a single model, whose values are not used; ``joined``: the same with stacked parameters."""
        super().__init__()
        for name, parameter in joined.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in joined.named_buffers(recurse=False):
            self.register_buffer(name, buffer, persistent=name not in joined._non_persistent_buffers_set)
        for name, module in joined.named_children():
            self.add_module(name, module)
        self._one = (_Methods(copy.deepcopy(one)),)  # in a tuple: its parameters are not the stack's
        self.fused = one.fused
        one_step = self._one[0].injection
        self._takes_stacks = isinstance(one_step, Diagonal | PairwiseConformal)

    def operator(self) -> Any:
        """The members' operators together, once per forward pass."""
        return self._each("operator")

    def drive(self, e: torch.Tensor, op: Any) -> torch.Tensor:
        """``[stack, rows, time, width]``, once per forward pass."""
        return self._each("drive", e, op)

    def step(self, h: torch.Tensor, op: Any, drive: torch.Tensor) -> torch.Tensor:
        """One step of all members; a step reads no parameter, only ``op``."""
        one = self._one[0].injection
        one.fused = self._takes_stacks and self.fused and kernels.fits(h, op[0])
        return one.step(h, op, drive) if one.fused else vmap(one.step)(h, op, drive)

    def _each(self, method: str, *arguments: Any) -> Any:
        def one(parameters: Mapping[str, torch.Tensor], *own: Any) -> Any:
            return functional_call(self._one[0], dict(parameters), (method, *own))

        return vmap(one)({f"injection.{name}": p for name, p in self.named_parameters()}, *arguments)


class _Methods(nn.Module):
    """Reaches an injection's methods through ``forward``, the one way in that functional_call has."""

    def __init__(self, injection: Injection) -> None:
        super().__init__()
        self.injection = injection

    def forward(self, method: str, *arguments: Any) -> Any:
        return getattr(self.injection, method)(*arguments)
