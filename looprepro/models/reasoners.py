"""From a configuration to the reasoner it names."""

from __future__ import annotations

from looprepro.config.models import LoopedTransformer
from looprepro.config.reasoners import FixedPointReasoner as FixedPointConfig
from looprepro.config.reasoners import RecursiveModel
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.reasoner import FixedPointReasoner, Reasoner
from looprepro.models.looped_reasoner import LoopedReasoner
from looprepro.models.recursive.attractor import Attractor
from looprepro.models.recursive.hierarchical import Hierarchical
from looprepro.models.recursive.universal import UniversalReasoner


def make_reasoner(config: FixedPointConfig | RecursiveModel | LoopedTransformer, shapes: Shapes) -> Reasoner:
    """Not yet initialised. :class:`looprepro.files.errors.ConfigError` where the task's shapes do not fit."""
    if isinstance(config, FixedPointConfig):
        return FixedPointReasoner(config, shapes)
    if isinstance(config, LoopedTransformer):
        return LoopedReasoner(config, shapes)
    if config.method == "urm":
        return UniversalReasoner(config, shapes)
    if config.method == "attractor":
        return Attractor(config, shapes)
    return Hierarchical(config, shapes)
