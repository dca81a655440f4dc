"""Figures of Fixed-Point Reasoners: what is drawn is what was collected, and a run that ended early is no zero."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from looprepro.analysis.results import Results, series_table
from looprepro.files.errors import StoreError
from looprepro.planning import available_sweeps, load_sweep
from looprepro.report.figure import in_order, save, stand_in, words
from looprepro.report.fixed_point import FIGURES, drawable
from looprepro.report.lines import lines
from looprepro.report.points import points


def row(model: str, layers: str, seed: int, metric: str, value: float, **more: Any) -> dict[str, Any]:
    return {
        "sweep": "fprm_depth",
        "scale": "smoke",
        "cell": f"{model}-{layers}-{seed}",
        "seed": seed,
        "T": int(layers) // 2,
        "role_T": "cap",
        "evaluation": f"T{int(layers) // 2}-x",
        "status": "done",
        "task": "state_tracking",
        "axis_model": model,
        "label_model": f"{model} loop",
        "axis_layers": layers,
        "label_layers": {"4": "4, the fewest", "16": "16"}.get(layers, layers),
        "metric": metric,
        "value": value,
        **more,
    }


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two models at 4 and 16 layers, two seeds; the pre-norm runs at 16 layers recorded norms for two and three layers only."""
    rows, series = [], {}
    for model in ("FPRM", "pre"):
        for layers in ("16", "4"):
            for seed in (0, 1):
                length = {"FPRM": 1.0, "pre": 0.5}[model] * int(layers) + seed
                rows.append(row(model, layers, seed, "max_length", length))
                rows.append(row(model, layers, seed, "effective_layers", float(layers) + seed))
                ends = 2 + seed if (model, layers) == ("pre", "16") else int(layers)
                norms = [float(10 ** (i if model == "pre" else 0) + seed) for i in range(ends)]
                name = f"activation_norm@T{int(layers) // 2}-x"
                series[f"{model}-{layers}-{seed}"] = {name: ([i + 1.0 for i in range(ends)], norms)}
                series[f"{model}-{layers}-{seed}"]["alpha_1"] = ([1.0, 2.0], [0.5, 0.25 * seed])
    return Results("smoke", tmp_path, rows, series_table(series))


def drawn(paths: list[Path]) -> list[dict[str, str]]:
    assert [path.suffix for path in paths] == [".png", ".pdf", ".csv"]
    assert all(path.stat().st_size > 0 for path in paths)
    with paths[-1].open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_lines_are_means_over_the_seeds_that_have_a_point(results: Results) -> None:
    found = drawn(lines(results, results.folder, "x", "fprm_depth", None, "activation_norm", "model", ("layers",)))
    assert list(dict.fromkeys(line["panel"] for line in found)) == ["4, the fewest", "16"], "in the order of the sweep file"
    pre = [line for line in found if (line["panel"], line["line"]) == ("16", "pre loop")]
    assert [(float(p["x"]), float(p["mean"]), int(p["n"])) for p in pre] == [(1.0, 1.5, 2), (2.0, 10.5, 2), (3.0, 101.0, 1)]
    assert pre[0]["se"] == "0.5"
    assert pre[2]["se"] == "", "one run has no standard error"


def test_a_shorter_solve_of_the_same_cell_is_no_further_seed(tmp_path: Path) -> None:
    rows, series = [], {}
    for seed in (0, 1):
        for T in (2, 4, 8):
            rows.append(row("FPRM", "16", seed, "exact_accuracy", 0.5) | {"T": T, "evaluation": f"T{T}-x", "role_T": f"{T}"})
        norms = [float(10 * seed + i) for i in range(8)]
        series[f"FPRM-16-{seed}"] = {f"activation_norm@T{T}-x": ([i + 1.0 for i in range(T)], norms[:T]) for T in (2, 4, 8)}
    several = Results("smoke", tmp_path, rows, series_table(series))
    found = drawn(lines(several, tmp_path, "x", "fprm_depth", None, "activation_norm", "model", ("layers",)))
    assert [(float(p["x"]), float(p["mean"]), float(p["se"]), p["n"]) for p in found] == [
        (i + 1.0, 5.0 + i, 5.0, "2") for i in range(8)
    ]


def test_norms_by_layer_are_dots_since_layers_alternate(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    styles = {}

    def keep(figure: Any, folder: Path, stem: str, drawn: Any) -> list[Path]:
        styles[stem] = {line.get_linestyle() for line in figure.axes[0].get_lines()}
        return save(figure, folder, stem, drawn)

    monkeypatch.setattr("looprepro.report.lines.save", keep)
    for series in ("activation_norm", "alpha_1"):
        lines(results, results.folder, series, "fprm_depth", None, series, "model", ("layers",))
    assert styles == {"activation_norm": {"None"}, "alpha_1": {"-"}}


def test_lines_over_training_need_no_evaluation(results: Results) -> None:
    found = drawn(lines(results, results.folder, "x", "fprm_depth", None, "alpha_1", "model", ("layers",)))
    last = [float(line["mean"]) for line in found if line["x"] == "2.0"]
    assert last == [0.125] * 4


def test_points_over_an_axis_of_numbers(results: Results) -> None:
    found = drawn(points(results, results.folder, "x", "fprm_depth", None, "max_length", "model", "layers"))
    assert [(line["line"], float(line["layers"]), float(line["mean"]), line["n"]) for line in found] == [
        ("FPRM loop", 4.0, 4.5, "2"),
        ("FPRM loop", 16.0, 16.5, "2"),
        ("pre loop", 4.0, 2.5, "2"),
        ("pre loop", 16.0, 8.5, "2"),
    ]


def test_the_ticks_of_an_axis_of_numbers_are_what_was_run(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = []

    def keep(figure: Any, *arguments: Any) -> list[Path]:
        axes.append(figure.axes[0])
        return save(figure, *arguments)

    monkeypatch.setattr("looprepro.report.points.save", keep)
    for over in ("layers", "effective_layers"):
        points(results, results.folder, "x", "fprm_depth", None, "max_length", "model", over)
    run, metric = axes
    assert ([t.get_text() for t in run.get_xticklabels()], run.get_xscale()) == (["4", "16"], "log")
    assert (list(run.get_xticks()), list(run.get_xticks(minor=True))) == ([4.0, 16.0], [])
    assert metric.get_xscale() == "linear"


def test_points_over_another_metric_are_a_front(results: Results) -> None:
    found = drawn(points(results, results.folder, "x", "fprm_depth", None, "max_length", "model", "effective_layers"))
    assert [(float(line["effective_layers"]), float(line["mean"])) for line in found if line["line"] == "FPRM loop"] == [
        (4.5, 4.5),
        (16.5, 16.5),
    ]


def test_a_picture_names_its_stand_in_and_its_lines_stand_as_in_the_table() -> None:
    assert stand_in("fprm_fig1", "smoke") == "stand-in, not Sudoku-Extreme: generated 4x4 Sudoku"
    assert stand_in("fprm_fig1", "paper") == stand_in("fprm_depth", "mini") == ""
    roles = {"another": "other", "FPRM loop": "FPRM", "pre-norm loop": "pre-norm", "post-norm loop": "post-norm"}
    assert in_order("fprm_depth", "model", roles) == ["post-norm loop", "pre-norm loop", "FPRM loop", "another"]
    assert words("effective_layers_by_difficulty") == "effective layers"


def test_runs_of_an_older_sweep_stay_out_and_nothing_to_draw_is_said(results: Results) -> None:
    wanted = {f"FPRM-4-{seed}": {"T2-x"} for seed in (0, 1)}
    found = drawn(lines(results, results.folder, "x", "fprm_depth", wanted, "activation_norm", "model", ("layers",)))
    assert {(line["panel"], line["line"]) for line in found} == {("4, the fewest", "FPRM loop")}
    with pytest.raises(
        StoreError, match=r"fprm_depth at scale smoke has no series residual_by_layers.*looprepro sweep fprm_depth"
    ):
        lines(results, results.folder, "x", "fprm_depth", None, "residual_by_layers", "model", ())


def test_a_measurement_that_the_sweep_no_longer_wants_counts_neither_as_number_nor_as_seed(results: Results) -> None:
    wanted = {row["cell"]: {row["evaluation"]} for row in results.rows}
    before = [row | {"evaluation": "T1-old", "T": 1, "value": 99.0} for row in results.rows]
    old = {f"FPRM-4-{seed}": {"activation_norm@T1-old": ([1.0], [99.0])} for seed in (0, 1)}
    series = pyarrow.concat_tables([results.series_table, series_table(old)])
    both = Results(results.scale, results.folder, [*before, *results.rows], series)
    for figure, of in ((points, ("max_length", "model", "layers")), (lines, ("activation_norm", "model", ("layers",)))):
        assert drawn(figure(both, both.folder, "x", "fprm_depth", wanted, *of)) == drawn(
            figure(results, results.folder, "x", "fprm_depth", wanted, *of)
        )
    with pytest.raises(StoreError, match="has no number of exact_accuracy over layers"):
        points(results, results.folder, "x", "fprm_depth", None, "exact_accuracy", "model", "layers")


def test_every_figure_names_a_sweep_and_axes_that_it_has(results: Results) -> None:
    for stem, (sweep, function, caption) in FIGURES.items():
        assert sweep in available_sweeps(), stem
        axes = load_sweep(sweep).axes
        settings = function.keywords  # type: ignore[attr-defined]
        assert settings.get("rows_by", settings.get("lines_by")) in axes
        assert set(settings.get("panels_by", ())) <= set(axes)
        assert caption.endswith(".")
    assert list(drawable(results)) == ["fprm_fig2a", "fprm_fig2b"]
