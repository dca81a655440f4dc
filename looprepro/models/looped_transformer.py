"""The looped transformer: embedding, prelude, a core applied T times to a recurrent state, coda, head.

    e = RMSNorm(prelude(embed(tokens)));  h_0 random;  h_{t+1} = core(inject(h_t, e));  logits = head(RMSNorm(coda(C h_T)))

Parcae's layout (arXiv 2604.12946), sections 1.2 to 1.7 of its public code. No norm on the state between steps, no
skip around the loop. Logits are float32 (float64 in a float64 model).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from looprepro import randomness
from looprepro.config.cell import LoopedTransformer as LoopedTransformerConfig
from looprepro.files.errors import ConfigError
from looprepro.models.blocks import Block, RMSNorm, document_mask, rope_table
from looprepro.models.depth_loop import PerRow, Step, active_rows, by_depth, checked_depths, masked
from looprepro.models.initialisation import base_std, set_normal, set_orthogonal
from looprepro.models.injections import make_injection
from looprepro.models.linear import Embedding, Linear, linear

ROW_BUCKETS = 4
"""Numbers of rows that a compiled step is made for: a quarter of the batch, half of it, three quarters, all."""


def has_value_table(layer: int, layers: int) -> bool:
    """Whether layer ``layer`` of ``layers`` (prelude, core, coda counted through) has a value table and, with it, a gate.

    Every second layer back from the last. One rule for both: Parcae decides the gate by another one, which depends on the
    recurrence and agrees only for some sizes.
    """
    return (layers - 1 - layer) % 2 == 0


class LoopedTransformer(nn.Module):
    """See the module. Call :meth:`initialise` (or load a checkpoint) before use."""

    rope: torch.Tensor

    def __init__(self, config: LoopedTransformerConfig, vocabulary: int, max_positions: int) -> None:
        super().__init__()
        assert config.mlp_width is not None, "config.LoopedTransformer fills it in"
        self.config = config
        self.max_positions = max_positions
        width = config.width
        layers = config.prelude_layers + config.core_layers + config.coda_layers
        tabled = [config.value_embeddings and has_value_table(layer, layers) for layer in range(layers)]
        blocks = [
            Block(width, config.heads, config.mlp_width, config.norm_eps, config.qk_norm_eps, value_gate)
            for value_gate in tabled
        ]
        core_start, coda_start = config.prelude_layers, config.prelude_layers + config.core_layers
        self._core_gates = tabled[core_start:coda_start]
        self.embedding = Embedding(vocabulary, width)
        self.prelude = nn.ModuleList(blocks[:core_start])
        self.norm_prelude = RMSNorm(width, config.norm_eps)
        self.injection = make_injection(config.injection, width)
        self.core = nn.ModuleList(blocks[core_start:coda_start])
        self.readout = Linear(width, width)
        """C of the equation above."""
        self.coda = nn.ModuleList(blocks[coda_start:])
        self.norm_final = RMSNorm(width, config.norm_eps)
        self.head = None if config.tied_head else Linear(width, vocabulary)
        self.value_tables = nn.ModuleDict({str(i): Embedding(vocabulary, width) for i in range(layers) if tabled[i]})
        self.register_buffer("rope", rope_table(max_positions, width // config.heads, config.rope_base), persistent=False)
        self.masked_loop = False
        """Take the plain masked loop instead of the active-rows loop (tests and benchmarks)."""
        self.checkpoint_steps = False
        """Keep only the state between recurrent steps for the backward pass and compute the inside of each step again there:
        the same numbers, less memory, one more forward pass of the steps with gradient."""
        self._core_pass = self._plain_core_pass
        self._compiled = False
        self._warm: set[tuple[int, ...]] = set()

    def initialise(self, seed: int) -> None:
        """Parcae's scaled-zero orthogonal start; each parameter from its own generator, keyed by ``seed`` and its name, so that
        methods of one seed share every weight outside the injection."""

        def generator(name: str) -> torch.Generator:
            return randomness.parameter_generator(seed, name)

        std = base_std(self.config.width)
        set_orthogonal(self.embedding.weight, std, generator("embedding"))
        set_orthogonal(self.readout.weight, std, generator("readout"))
        if self.head is not None:
            set_orthogonal(self.head.weight, std, generator("head"))
        for norm in (self.norm_prelude, self.norm_final):
            nn.init.ones_(norm.weight)
        for stage in ("prelude", "core", "coda"):
            for i, block in enumerate(getattr(self, stage)):
                block.initialise(generator, f"{stage}.{i}")
        for layer, table in self.value_tables.items():
            set_normal(table.get_parameter("weight"), 1.0, generator(f"value_tables.{layer}"))
        self.injection.initialise(lambda name: generator(f"injection.{name}"))

    def state_std(self) -> float:
        """sqrt(2 / (5 d)): the initial state is a normal of this deviation, cut at 3 deviations."""
        return base_std(self.config.width)

    def compile_core(self, **options: object) -> None:
        """torch.compile one recurrent step (injection and core blocks) for static shapes; the plain code stays the oracle.

        The loop then shows the step :data:`ROW_BUCKETS` numbers of rows, so that :meth:`warm_up` meets every shape.
        """
        from torch._dynamo import config as dynamo  # a second of imports, for those who compile

        dynamo.recompile_limit = max(dynamo.recompile_limit, 256)  # one shape, one entry: buckets times word lengths
        self._core_pass = torch.compile(self._plain_core_pass, dynamic=False, **options)  # type: ignore[call-overload]
        self._compiled, self._warm = True, set()

    def plain_core(self) -> None:
        """Undo :meth:`compile_core`: a copy of a compiled model would go on with the original's weights."""
        self._core_pass = self._plain_core_pass
        self._compiled = False

    def warm_up(self, shape: Sequence[int]) -> float:
        """Compile every step that a batch of tokens of ``shape`` can ask for; seconds spent. Nothing to do in plain code or the
        second time. Where compiling fails the plain code takes over, after one warning."""
        if not self._compiled or tuple(shape) in self._warm:
            return 0.0
        from torch._dynamo.exc import TorchDynamoException

        began = time.monotonic()
        try:
            self._compile_for(shape)
        except TorchDynamoException as failure:
            reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
            warnings.warn(f"the core cannot be compiled, the plain code runs instead: {reason}", RuntimeWarning, stacklevel=2)
            self.plain_core()
        self._warm.add(tuple(shape))
        return time.monotonic() - began

    def _compile_for(self, shape: Sequence[int]) -> None:
        *stack, rows, _ = shape
        dim, unit = len(stack), self._unit(rows)
        op, per_row = self._prepare(torch.zeros(*shape, dtype=torch.int64, device=self.rope.device), None)
        state = torch.zeros(*shape, self.config.width, dtype=self.readout.weight.dtype, device=self.rope.device)
        step = self._step(op)
        for count in (*range(unit, rows, unit), rows):
            part, own = state.narrow(dim, 0, count), tuple(tensor.narrow(dim, 0, count) for tensor in per_row)
            for first in (False, True) if count == rows else (False,):  # h_0 has no gradient, later states have one
                h = part.clone().requires_grad_(not first)
                torch.autograd.grad(step(h, own).sum(), own, retain_graph=True)
            if self.config.recurrence.backprop_depth is not None:
                with torch.no_grad():
                    step(part, own)

    def _unit(self, rows: int) -> int:
        """Rows by which the compiled loop shrinks."""
        return -(-rows // ROW_BUCKETS) if self._compiled else 1

    def forward(
        self,
        tokens: torch.Tensor,
        depths: torch.Tensor | int,
        state: torch.Tensor,
        documents: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits ``[rows, time, vocabulary]`` after ``depths`` steps of each row (one number: of all rows).

        ``tokens`` int64 ``[rows, time]``; ``depths`` int64 ``[rows]``, best on the CPU, since it steers the loop; ``state``
        is h_0, ``[rows, time, width]``. Gradient flows through each row's last ``recurrence.backprop_depth`` steps. In a stack
        (models/stack.py) tokens, state and logits have a leading stack dimension; the depths are the members' common ones.
        ``documents`` int64 ``[rows, time]``: attention stays between positions of equal number.
        A depth below 1 is a :class:`~looprepro.models.depth_loop.DepthError`.
        """
        self._check(tokens, state)
        rows, dim = tokens.shape[-2], tokens.dim() - 2
        given = [depths] * rows if isinstance(depths, int) else checked_depths(depths)
        if len(given) != rows:
            raise ValueError(f"{len(given)} depths for {rows} rows")
        backprop_depth = self.config.recurrence.backprop_depth
        if self.masked_loop:
            op, per_row = self._prepare(tokens, documents)
            final = masked(self._step(op), state, per_row, given, backprop_depth, dim)
            return self._read(final, tokens, documents)
        order = by_depth(given, tokens.device)
        mixed = order.depths[0] != order.depths[-1]
        # Sorting tokens and h_0, which carry no gradient, leaves one gather of states on the way out as the only cost.
        sorted_documents = documents[order.sort] if mixed and documents is not None else documents
        op, per_row = self._prepare(_select(tokens, order.sort, dim) if mixed else tokens, sorted_documents)
        start = _select(state, order.sort, dim) if mixed else state
        final = active_rows(self._step(op), start, per_row, order.depths, backprop_depth, dim, self._unit(rows))
        return self._read(_select(final, order.restore, dim) if mixed else final, tokens, documents)

    def readouts(
        self, tokens: torch.Tensor, state: torch.Tensor, budgets: Sequence[int], documents: torch.Tensor | None = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """(T, logits) at each of the ascending ``budgets``, in one pass of max(budgets) steps; equal to ``forward`` at T.

        The caller holds ``torch.no_grad()``.
        """
        self._check(tokens, state)
        if list(budgets) != sorted(set(budgets)):
            raise ValueError(f"budgets {list(budgets)} must ascend without repetition")
        checked_depths(budgets)
        op, per_row = self._prepare(tokens, documents)
        step = self._step(op)
        done = 0
        for budget in budgets:
            for _ in range(budget - done):
                state = step(state, per_row)
            done = budget
            yield budget, self._read(state, tokens, documents)

    @torch.no_grad()
    def relative_change(
        self, tokens: torch.Tensor, state: torch.Tensor, steps: int, documents: torch.Tensor | None = None
    ) -> torch.Tensor:
        """|x_T - x_{T-1}| / |x_T| of each row over all positions, ``[rows]``, at T = ``steps``: how far it is from rest."""
        self._check(tokens, state)
        checked_depths([steps])
        op, per_row = self._prepare(tokens, documents)
        step = self._step(op)
        before = state
        for _ in range(steps):
            before, state = state, step(state, per_row)
        return (state - before).flatten(1).norm(dim=1) / state.flatten(1).norm(dim=1)

    def encode(self, tokens: torch.Tensor) -> torch.Tensor:
        """e ``[rows, time, width]``: what the loop is driven by. For models without value embeddings, as the two below."""
        assert not self.config.value_embeddings
        e = self.embedding(tokens)
        for block in self.prelude:
            e = block(e, self.rope[: tokens.shape[1]])
        return self.norm_prelude(e)

    def recur(self, h: torch.Tensor, e: torch.Tensor, probe: Callable[[torch.Tensor], None] | None = None) -> torch.Tensor:
        """One recurrent step from ``h`` with ``e`` injected; ``probe`` is shown the state after each core block."""
        op = self.injection.operator()
        h = self.injection.step(h, op, self.injection.drive(e, op))
        for block in self.core:
            h = block(h, self.rope[: h.shape[1]])
            if probe is not None:
                probe(h)
        return h

    def decode(self, h: torch.Tensor) -> torch.Tensor:
        """Logits ``[rows, time, vocabulary]`` from a state."""
        assert not self.config.value_embeddings
        return self._read(h, None, None)

    def _check(self, tokens: torch.Tensor, state: torch.Tensor) -> None:
        if tokens.shape[-1] > self.max_positions:
            raise ConfigError(
                f"{tokens.shape[-1]} positions, but the model was built for {self.max_positions}",
                "Build it with more positions",
            )
        if state.shape != (*tokens.shape, self.config.width):
            raise ValueError(
                f"state {tuple(state.shape)} does not fit tokens {tuple(tokens.shape)} at width {self.config.width}"
            )

    def _value(self, layer: int, tokens: torch.Tensor | None) -> torch.Tensor | None:
        """The value vectors ``[rows, time, width]`` of layer ``layer``, where it has a table."""
        key = str(layer)
        return self.value_tables[key](tokens) if tokens is not None and key in self.value_tables else None

    def _prepare(self, tokens: torch.Tensor, documents: torch.Tensor | None) -> tuple[Any, PerRow]:
        """(operator, per-row tensors): all that the steps need and that does not depend on the step."""
        e = self.embedding(tokens)
        rope = self.rope[: tokens.shape[-1]]
        mask = None if documents is None else document_mask(documents)
        for layer, block in enumerate(self.prelude):
            e = block(e, rope, self._value(layer, tokens), mask)
        e = self.norm_prelude(e)
        op = self.injection.operator()
        first = len(self.prelude)
        values = [self._value(first + i, tokens) for i in range(len(self.core))]
        kept = [value for value in values if value is not None]
        return op, (self.injection.drive(e, op), *kept, *([] if mask is None else [mask]))

    def _step(self, op: Any) -> Step:
        def step(h: torch.Tensor, per_row: PerRow) -> torch.Tensor:
            if self.checkpoint_steps and torch.is_grad_enabled():
                # Nothing in a step draws random numbers, so there is no generator state to save.
                return checkpoint(self._core_pass, h, op, *per_row, use_reentrant=False, preserve_rng_state=False)
            return self._core_pass(h, op, *per_row)

        return step

    def _plain_core_pass(self, h: torch.Tensor, op: Any, drive: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        """One recurrent step; ``values`` belong to the core layers that have a gate, in order; a mask may come last."""
        rope = self.rope[: h.shape[-2]]
        h = self.injection.step(h, op, drive)
        given = iter(values)
        mask = values[-1] if len(values) > sum(self._core_gates) else None
        for block, has_gate in zip(self.core, self._core_gates, strict=True):
            h = block(h, rope, next(given) if has_gate else None, mask)
        return h

    def _read(self, h: torch.Tensor, tokens: torch.Tensor | None, documents: torch.Tensor | None) -> torch.Tensor:
        """Logits from the state after the loop."""
        h = self.readout(h)
        rope = self.rope[: h.shape[-2]]
        mask = None if documents is None else document_mask(documents)
        first = len(self.prelude) + len(self.core)
        for i, block in enumerate(self.coda):
            h = block(h, rope, self._value(first + i, tokens), mask)
        h = self.norm_final(h)
        logits = linear(h, self.embedding.weight if self.head is None else self.head.weight)
        return logits if logits.dtype == torch.float64 else logits.float()


def _select(x: torch.Tensor, rows: torch.Tensor, dim: int) -> torch.Tensor:
    """``rows`` of ``x``, which lie along dimension 0, or 1 in a stack."""
    return x[rows] if dim == 0 else x[:, rows]
