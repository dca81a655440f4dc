"""Figures: what is drawn is in the csv, files are the same bytes for the same data, an empty result is one clear line."""

from __future__ import annotations

import csv
import dataclasses
import math
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from looprepro.analysis.results import Results, series_table
from looprepro.cli.plot import NAMES
from looprepro.files.errors import ConfigError, StoreError
from looprepro.report.plots import FIGURES, plot


def drawn(paths: list[Path]) -> list[dict[str, str]]:
    with open(paths[-1], encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_png_a_pdf_and_the_data_that_it_shows(results: Results, name: str) -> None:
    paths = plot(name, results)
    assert [path.relative_to(results.folder).as_posix() for path in paths] == [
        f"figures/{name}.{suffix}" for suffix in ("png", "pdf", "csv")
    ]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in paths[1].read_bytes()
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in plot(name, results)] == before


def test_groups_draws_the_mean_of_the_finished_seeds_and_the_baseline(results: Results) -> None:
    lines = {(line["panel"], line["G"], line["T"]): line for line in drawn(plot("groups", results))}
    values = [
        row["value"]
        for row in results.rows
        if (row["task_group"], row["axis_method"], row["T"]) == ("A5", "G=4", 16) and row.get("metric") == "last_token_accuracy"
    ]
    entry = lines["A5", "4", "16"]
    assert float(entry["mean"]) == pytest.approx(statistics.fmean(values))
    assert float(entry["se"]) == pytest.approx(statistics.stdev(values) / 2)  # one of five seeds failed
    assert lines["A5", "", "16"]["method"] == "diagonal"
    assert lines["A5", "", "16"]["n"] == "4"
    assert len(lines) == 2 * 3 * 5


@pytest.mark.parametrize("name", ["groups", "depth"])
def test_runs_that_differ_in_another_axis_have_panels_of_their_own(results: Results, name: str) -> None:
    mine = [row for row in results.rows if row["task_group"] == "A5"]
    sizes = [
        row | {"cell": f"{row['cell']}-{size}", "axis_size": size, "label_size": size, "value": row.get("value", 0.0) + shift}
        for row in mine
        for size, shift in (("140M", 1.0), ("60M", 0.0))
    ]
    lines = drawn(plot(name, dataclasses.replace(results, rows=sizes)))
    assert list(dict.fromkeys(line["panel"] for line in lines)) == ["A5, 60M", "A5, 140M"]
    small, large = ([float(p["mean"]) for p in lines if p["panel"] == f"A5, {size}"] for size in ("60M", "140M"))
    assert large == pytest.approx([mean + 1 for mean in small])


def test_groups_of_a_single_seed_have_no_error(results: Results) -> None:
    single = dataclasses.replace(results, rows=[row for row in results.rows if row["seed"] == 0])
    assert {line["se"] for line in drawn(plot("groups", single))} == {""}


def test_curves_average_over_seeds_and_count_the_diverged(results: Results) -> None:
    lines = [line for line in drawn(plot("curves", results)) if line["panel"] == "A5" and line["method"] == "diagonal"]
    losses = results.series("loss")
    at_900 = [losses[f"A5-diagonal-s{seed}"][1][18] for seed in (0, 1, 2, 4)]
    line = next(line for line in lines if float(line["step"]) == 900.0)
    assert float(line["mean_loss"]) == pytest.approx(statistics.fmean(at_900))
    assert (line["n"], line["diverged"]) == ("4", "1")
    assert len(lines) == 91


def test_curves_show_only_steps_that_every_seed_logged(results: Results) -> None:
    rows = [row for row in results.rows if row["cell"] in ("A5-G=2-s0", "A5-G=2-s1")]
    series = series_table({"A5-G=2-s0": {"loss": ([0.0, 50.0], [4.0, 2.0])}, "A5-G=2-s1": {"loss": ([0.0], [3.0])}})
    lines = drawn(plot("curves", dataclasses.replace(results, rows=rows, series_table=series)))
    assert [(line["step"], line["mean_loss"]) for line in lines] == [("0.0", "3.5")]


def test_a_long_curve_is_averaged_in_blocks_within_each_seed_first(results: Results) -> None:
    steps = [float(step) for step in range(300)]
    rows = [row for row in results.rows if row["cell"] in ("A5-G=2-s0", "A5-G=2-s1")]
    series = series_table({"A5-G=2-s0": {"loss": (steps, [1.0, 3.0] * 150)}, "A5-G=2-s1": {"loss": (steps, [4.0, 6.0] * 150)}})
    lines = drawn(plot("curves", dataclasses.replace(results, rows=rows, series_table=series)))
    assert len(lines) == 150
    assert {line["mean_loss"] for line in lines} == {"3.5"}
    assert [float(line["se"]) for line in lines] == pytest.approx([1.5] * 150)  # of 2 and 5: s = 2.1213, over sqrt(2)
    assert [line["step"] for line in lines[:2]] == ["0.5", "2.5"]


def test_spectrum_has_one_panel_per_row_and_falls_back_to_initial_values(results: Results) -> None:
    lines = drawn(plot("spectrum", results))
    trained = {line["method"]: line["trained"] for line in lines}
    assert trained == {
        "diagonal": "True",
        "conformal, G = 1": "True",
        "conformal, G = 2": "True",
        "conformal, G = 4": "False",
        "conformal, G = 32 (d/2)": "True",
    }
    assert {line["cell"] for line in lines if line["method"] == "diagonal"} == {"A5-diagonal-s0"}
    assert len(lines) == 5 * 64


def test_gram_shows_the_diagonal_one_group_and_two_writes_of_several_groups(results: Results) -> None:
    lines = drawn(plot("gram", results))
    panels = list(dict.fromkeys((line["method"], line["write"]) for line in lines))
    assert panels == [
        ("diagonal", "written anywhere"),
        ("conformal, G = 1", "written anywhere"),
        ("conformal, G = 2", "written inside one group"),
        ("conformal, G = 2", "written across the groups"),
    ]
    inside = {(line["t"], line["s"]): float(line["cosine"]) for line in lines if line["write"] == "written inside one group"}
    assert len(inside) == 17 * 17
    assert inside["3", "5"] == inside["5", "3"] == pytest.approx(math.cos(0.3))
    across = {(line["t"], line["s"]): float(line["cosine"]) for line in lines if line["write"].endswith("across the groups")}
    assert across["0", "1"] < across["9", "10"]


def test_depth_draws_the_mean_of_every_method_at_every_budget(results: Results) -> None:
    lines = {(line["panel"], line["method"], line["T"]): line for line in drawn(plot("depth", results))}
    assert len(lines) == 2 * 5 * 3
    entry = lines["A5", "diagonal", "24"]
    values = [
        row["value"]
        for row in results.rows
        if (row["task_group"], row["axis_method"], row["T"]) == ("A5", "diagonal", 24)
        and row.get("metric") == "last_token_accuracy"
    ]
    assert (float(entry["mean"]), entry["n"]) == (pytest.approx(statistics.fmean(values)), "4")
    assert entry["role_T"] == "3T_max/2"


def test_positions_averages_over_seeds_at_every_position(results: Results) -> None:
    lines = drawn(plot("positions", results))
    assert len(lines) == 5 * 3 * 32
    line = next(line for line in lines if (line["method"], line["T"], line["position"]) == ("conformal, G = 2", "8", "20.0"))
    series = results.series("position_accuracy@T=8")
    assert float(line["mean"]) == pytest.approx(statistics.fmean(series[f"A5-G=2-s{seed}"][1][19] for seed in range(5)))


def test_defect_tells_the_two_kinds_of_probes_apart(results: Results) -> None:
    lines = {(line["method"], line["probes"], line["T"]): line for line in drawn(plot("defect", results))}
    assert len(lines) == 5 * 2 * 3
    assert float(lines["conformal, G = 2", "sphere", "16"]["mean"]) == pytest.approx(0.064 * 1.2)
    assert float(lines["conformal, G = 2", "blockwise", "16"]["mean"]) < 1e-15


def test_the_command_line_offers_every_figure() -> None:
    assert tuple(NAMES) == (*FIGURES, "fixed_point")


def test_cells_outside_the_present_sweep_are_not_drawn(results: Results) -> None:
    wanted = {row["cell"]: evaluations(results) for row in results.rows if row["axis_method"] == "diagonal"}
    assert {line["method"] for line in drawn(plot("curves", results, wanted=wanted))} == {"diagonal"}


def evaluations(results: Results) -> set[str]:
    return {row["evaluation"] for row in results.rows}


def test_another_sweep_gets_files_of_its_own(results: Results) -> None:
    rows = [row | {"sweep": "table2"} for row in results.rows]
    assert plot("groups", dataclasses.replace(results, rows=rows), sweep="table2")[0].name == "groups-table2.png"


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_draw_is_one_line_with_the_remedy(results: Results, name: str) -> None:
    empty = dataclasses.replace(results, rows=[], series_table=series_table({}))
    with pytest.raises(StoreError, match=r"looprepro sweep table1 --scale mini; looprepro collect"):
        plot(name, empty)
    assert not (results.folder / "figures").exists()


def test_an_unknown_figure_names_the_known_ones(results: Results) -> None:
    with pytest.raises(ConfigError, match="gram, spectrum, groups, depth, positions, curves, defect"):
        plot("histogram", results)


def test_importing_the_room_loads_no_heavy_package() -> None:
    heavy = "{'torch', 'pandas', 'pyarrow', 'scipy', 'matplotlib', 'numpy', 'rich'}"
    code = (
        "import sys, looprepro.report.plots, looprepro.report.tables, looprepro.analysis.collect;"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", ["depth", "groups"])
def test_two_rows_of_one_operator_and_one_g_are_two_lines(results: Results, name: str) -> None:
    """Two settings of one operator differ in their place in the sweep only; neither may hide the other."""
    rows = []
    for row in results.rows:
        rows.append(row)
        if row["axis_method"] == "G=2":
            slow = {"axis_method": "slow", "label_method": "slow, G = 2", "value": 0.5 * row["value"]} if "value" in row else {}
            rows.append(row | slow)
    several = dataclasses.replace(results, rows=rows)
    lines = {line["method"] for line in drawn(plot(name, several))}
    assert {"slow, G = 2", "conformal, G = 2"} <= lines
