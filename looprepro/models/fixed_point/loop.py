"""One loop: convolution, injection of the input, L layers. What every model of the second paper applies again and again.

    z <- conv(z);  z <- a2 z + b2 x;  per layer: z <- a1 z + b1 Attention(Norm z), z <- a1 z + b1 SwiGLU(Norm z)

(Fixed-Point Reasoners, equations 1 to 3, appendix C.) With all coefficients 1 it is the plain loop z <- layers(z + x).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from looprepro.config.reasoners import FixedPointReasoner, LoopFields, RecursiveModel, gated_width, mixing_width
from looprepro.models.blocks import rope_table
from looprepro.models.fixed_point.convolution import make_convolution
from looprepro.models.fixed_point.scaling import Coefficients, Scaling, scaled
from looprepro.models.fixed_point.sublayers import Attention, PositionMixer, SwiGLU, rms_norm
from looprepro.models.initialisation import GeneratorOf
from looprepro.models.injections import make_injection

Probe = Callable[[Tensor], None]
"""Is shown the state after each layer, ``[rows, positions, width]``; must not change it."""


@dataclass(frozen=True)
class Shapes:
    """What a reasoner has to know of its task: sizes, not meanings."""

    vocabulary: int
    time: int
    """Longest sequence, without the prefix."""
    causal: bool
    """Whether a position may see only those before it."""
    grid: tuple[int, int] | None = None
    """(height, width) where the sequence is a grid, row by row."""
    identifiers: int = 0
    """Puzzle identifiers, each with an embedding of its own."""


class Layer(nn.Module):
    """Two sub-layers: a mixer of positions and a SwiGLU."""

    def __init__(self, config: LoopFields, shapes: Shapes) -> None:
        super().__init__()
        self.norm, self.eps = config.norm, config.norm_eps
        width, positions = config.width, config.prefix + shapes.time
        recursive = config if isinstance(config, RecursiveModel) else None
        if recursive is not None and recursive.mixer == "mlp":
            self.mixer: nn.Module = PositionMixer(positions, mixing_width(positions, config.expansion))
        else:
            self.mixer = Attention(width, config.heads, shapes.causal)
        kernel = recursive.gate_kernel if recursive is not None and recursive.method == "urm" else None
        self.mlp = SwiGLU(width, gated_width(width, config.expansion), kernel)

    def forward(self, z: Tensor, rope: Tensor | None, scale: Coefficients) -> Tensor:
        z = self._write(z, lambda y: self.mixer(y, rope), scale)
        return self._write(z, self.mlp, scale)

    def _write(self, z: Tensor, sublayer: Callable[[Tensor], Tensor], scale: Coefficients) -> Tensor:
        """a1 z + b1 f(z), normed where ``norm`` says."""
        written = sublayer(z if self.norm == "post" else rms_norm(z, self.eps))
        if self.norm == "peri":
            written = rms_norm(written, self.eps)
        z = scaled(scale.a1, z) + scaled(scale.b1, written)
        return rms_norm(z, self.eps) if self.norm == "post" else z

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        self.mixer.initialise(generator, f"{name}.mixer")  # type: ignore[operator]
        self.mlp.initialise(generator, f"{name}.mlp")


class Loop(nn.Module):
    """f(z; x) of the module's head, ``[rows, positions, width]`` each, positions = prefix + time."""

    rope: Tensor | None

    def __init__(self, config: LoopFields, shapes: Shapes) -> None:
        super().__init__()
        self.config = config
        own = config if isinstance(config, FixedPointReasoner) else None
        self.placement = own.norm_placement if own is not None else "none"
        self.convolution = make_convolution(config.convolution, config.kernel, config.width, config.prefix, shapes.grid)
        self.scaling = Scaling(config)
        bridge = own.injection if own is not None else None
        self.injection = make_injection(bridge, config.width) if bridge is not None else None
        self.layers = nn.ModuleList(Layer(config, shapes) for _ in range(config.layers))
        table = None
        if config.positions == "rope":
            table = rope_table(config.prefix + shapes.time, config.width // config.heads, config.rope_base)
        self.register_buffer("rope", table, persistent=False)

    def forward(self, z: Tensor, x: Tensor, probe: Probe | None = None) -> Tensor:
        """One iteration from ``z`` with ``x`` injected."""
        if self.convolution is not None:
            z = self.convolution(z)
        if self.placement == "input":
            z = rms_norm(z, self.config.norm_eps)
        scale = self.scaling(z)
        if self.injection is None:
            z = scaled(scale.a2, z) + scaled(scale.b2, x)
        else:
            op = self.injection.operator()
            # A convolution leaves positions innermost in memory; a rotation reads pairs of neighbouring coordinates.
            z = self.injection.step(z.contiguous(), op, self.injection.drive(x, op))
        rope = None if self.rope is None else self.rope[: z.shape[1]]
        for layer in self.layers:
            z = layer(z, rope, scale)
            if probe is not None:
                probe(z)
        return rms_norm(z, self.config.norm_eps) if self.placement == "output" else z

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        self.scaling.initialise(generator, f"{name}.scaling")
        if self.convolution is not None:
            self.convolution.initialise(generator, f"{name}.convolution")
        if self.injection is not None:
            self.injection.initialise(lambda part: generator(f"{name}.injection.{part}"))
        for i, layer in enumerate(self.layers):
            layer.initialise(generator, f"{name}.layers.{i}")  # type: ignore[operator]

    @torch.no_grad()
    def monitored(self) -> dict[str, float]:
        """Mean, smallest and largest a1 and a2 where they are parameters; the convolution's largest gain on a channel."""
        found = {}
        for number in (1, 2):
            vector = getattr(self.scaling, f"alpha_{number}", None)
            if vector is not None:
                alpha = torch.sigmoid(vector.double())
                found[f"alpha_{number}"] = float(alpha.mean())
                found[f"alpha_{number}_min"], found[f"alpha_{number}_max"] = float(alpha.min()), float(alpha.max())
        if self.convolution is not None:
            # The sum of absolute taps bounds the gain of a depthwise convolution, so Theorem 1's bound can be judged.
            found["convolution_gain"] = float(self.convolution.weight.double().abs().flatten(1).sum(dim=1).max())
        return found
