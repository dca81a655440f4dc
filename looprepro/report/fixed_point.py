"""Every figure of Fixed-Point Reasoners that collected numbers allow, by one name: ``looprepro plot fixed_point``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from looprepro.analysis.results import Results
from looprepro.analysis.samples import Wanted
from looprepro.report.lines import lines
from looprepro.report.points import points

Draw = Callable[..., list[Path]]


def _series(series: str, rows_by: str = "model", panels_by: tuple[str, ...] = ()) -> Draw:
    return partial(lines, series=series, rows_by=rows_by, panels_by=panels_by)


def _over(metric: str, over: str, lines_by: str = "model") -> Draw:
    return partial(points, metric=metric, over=over, lines_by=lines_by)


FIGURES: Mapping[str, tuple[str, Draw, str]] = {
    "fprm_fig1": ("fprm_fig1", _series("exact_accuracy_by_layers"), "Figures 1 and 6: accuracy over effective layers."),
    "fprm_fig2a": ("fprm_depth", _over("max_length", "layers"), "Figure 2a: longest word above 90% over effective layers."),
    "fprm_fig2b": ("fprm_depth", _series("activation_norm", panels_by=("layers",)), "Figure 2b: activation norm by layer."),
    "fprm_fig4": (
        "fprm_adaptive",
        _series("effective_layers_by_difficulty", panels_by=("task",)),
        "Figure 4: effective layers at halting over difficulty.",
    ),
    "fprm_fig12": (
        "fprm_adaptive",
        _series("exact_accuracy_by_layers", panels_by=("task",)),
        "Figure 12: accuracy of halted answers over effective layers.",
    ),
    "fprm_fig5": ("fprm_scaling", _over("exact_accuracy", "effective_layers", "gamma"), "Figure 5: accuracy against compute."),
    "fprm_fig5a": (
        "fprm_scaling",
        _series("exact_accuracy_by_difficulty", rows_by="gamma", panels_by=("patience",)),
        "Figure 5a: accuracy by difficulty at each decay.",
    ),
    "fprm_norms": ("fprm_norms", _series("activation_norm"), "Section 4.4.1: activation norm by layer."),
    "fprm_use_of_depth": ("fprm_norms", _series("exact_accuracy_by_layers"), "Section 4.4.2: accuracy over layers."),
    "fprm_alpha_1": ("fprm_alpha", _series("alpha_1", rows_by="start"), "Section 4.4.3: mean of alpha_1 in training."),
    "fprm_alpha_2": ("fprm_alpha", _series("alpha_2", rows_by="start"), "Section 4.4.3: mean of alpha_2 in training."),
    "fprm_toy": ("fprm_toy", _over("max_length", "layers"), "Appendix B, our toy: parity."),
    "bridge_norms": (
        "bridge",
        _series("activation_norm", rows_by="injection", panels_by=("halting",)),
        "The first paper's injections in the second's loop: activation norm by layer.",
    ),
}
"""Stem -> (sweep, how it is drawn, caption)."""


def drawable(results: Results) -> Iterator[str]:
    """Stems whose sweep has finished rows."""
    present = {row["sweep"] for row in results.rows if row["status"] == "done"}
    yield from (stem for stem, (sweep, _, _) in FIGURES.items() if sweep in present)


def draw(stem: str, results: Results, folder: Path, wanted: Wanted | None) -> list[Path]:
    """Draw one of them; ``wanted``: cells and evaluations of its sweep today. :class:`StoreError` where none is drawn."""
    sweep, function, _ = FIGURES[stem]
    return function(results, folder, stem, sweep, wanted)
