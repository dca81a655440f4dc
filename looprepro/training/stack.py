"""Group-word runs that differ only in their seed, trained as one stacked model.

One forward and one backward pass serve all members; what a run has of its own stays its own: words, x_0, initial weights,
gradient norm and clipping, Adam's moments, averaged weights. Depths are common, as the depth stream ignores the seed.
Equal to the members trained alone up to rounding (a batched product may sum in another order).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from looprepro.models.stack import stacked
from looprepro.tasks.task import Batch
from looprepro.training.families import Diverged, MembersDiverged
from looprepro.training.schedule import learning_rate
from looprepro.training.trainer import StepReport, WordTrainer


class StackedTrainer:
    """Takes ``members`` over where they stand; :meth:`settle` gives them back what the stack has learned."""

    def __init__(self, members: Sequence[WordTrainer]) -> None:
        """All at the same step, and equal in everything but the seed."""
        self.members = tuple(members)
        first = self.members[0]
        self.step, self.training, self.device = first.step, first.training, first.device
        if any(member.step != self.step for member in self.members):
            raise ValueError(f"members of a stack stand at one step, not at {sorted({m.step for m in self.members})}")
        self.model = stacked([member.model for member in self.members])
        if first.compiled:
            self.model.compile_core()
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = type(first.optimizer)(self.parameters.values(), **first.optimizer.defaults)
        for name, parameter in self.parameters.items():
            states = [member.optimizer.state.get(member.parameters[name], {}) for member in self.members]
            if states[0]:  # the moments, stacked; the count of updates, which is common
                self.optimizer.state[parameter] = {
                    key: value.clone() if key == "step" else torch.stack([state[key] for state in states])
                    for key, value in states[0].items()
                }
        self.average: dict[str, Tensor] = {
            name: torch.stack([member.average[name] for member in self.members]) for name in first.average
        }

    def train_step(self) -> list[StepReport]:
        """One update of every member, in their order. :class:`MembersDiverged` where a loss or gradient norm is not finite:
        then nobody's weights are touched, and the others go on as a stack of their own."""
        training, step, first = self.training, self.step, self.members[0]
        batch = _joined([member.batch(step) for member in self.members])
        counts = first.sample_depths(step)
        time_steps = batch.tokens.shape[-1]
        state = torch.stack([member.initial_state(step, training.batch, time_steps) for member in self.members])
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=training.dtype == "bfloat16"):
            logits = self.model(batch.tokens, counts, state)
        losses = first.task.loss(logits, batch).mean(dim=-1)
        losses.sum().backward()  # no member's loss depends on another's weights: the gradient of the sum is each one's own
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norms = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]), dim=0
        )
        measured = list(zip(losses.detach().tolist(), norms.tolist(), strict=True))
        bad = {i: _diverged(step + 1, *pair) for i, pair in enumerate(measured) if not all(map(math.isfinite, pair))}
        if bad:
            raise MembersDiverged(bad)
        if training.clip is not None:
            factors = (training.clip / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grads_with_norm_
            for gradient in gradients:
                gradient.mul_(factors.view(-1, *(1,) * (gradient.dim() - 1)))
        rate = learning_rate(training, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        self.average = first.averaged(self.average, self.parameters, self.step)
        length, depth = first.task.length(step), float(counts.double().mean())
        return [StepReport(self.step, loss, norm, rate, length, depth) for loss, norm in measured]

    def warm_up(self) -> None:
        """Compile what the next step needs, so that no step does it."""
        shape = len(self.members), *self.members[0].batch_shape(self.step)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
            seconds = self.model.warm_up(shape)
        for member in self.members:
            member.compile_seconds += seconds

    @torch.no_grad()
    def settle(self) -> None:
        """Let every member stand where the stack stands: its weights, moments and average are then views of the stack's."""
        for i, member in enumerate(self.members):
            for name, parameter in self.parameters.items():
                member.parameters[name].data = parameter.data[i]
                member.optimizer.state[member.parameters[name]] = {
                    key: value.clone() if key == "step" else value[i]
                    for key, value in self.optimizer.state.get(parameter, {}).items()
                }
            member.average = {name: tensor[i] for name, tensor in self.average.items()}
            member.step = self.step


def _joined(batches: Sequence[Batch]) -> Batch:
    """Tokens and targets ``[stack, rows, time]``; what the batches share stays as it is."""
    tokens, targets = (torch.stack(list(parts)) for parts in zip(*((b.tokens, b.targets) for b in batches), strict=True))
    return Batch(tokens, targets, batches[0].scored, batches[0].rows)


def _diverged(step: int, loss: float, norm: float) -> Diverged:
    return Diverged(step, f"gradient norm is {norm}" if math.isfinite(loss) else f"loss is {loss}")
