"""collect: what becomes a row, what stays when runs/ goes, what a damaged file and a killed process leave behind."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.cells import CELLS, read_cells
from looprepro.analysis.collect import collect_scale
from looprepro.analysis.results import RESULTS, SERIES_FILE, load_results
from looprepro.config.evaluations import parse_evaluation
from looprepro.config.identity import evaluation_id
from looprepro.config.presence import Presence
from looprepro.files.errors import StoreError
from looprepro.store import Problem


def numbers(folder: Path) -> dict[tuple[str, int], float]:
    """(cell, T) -> value of every row that has one."""
    return {(row["cell"], row["T"]): row["value"] for row in load_results(folder, "smoke").rows if "value" in row}


def test_a_measurement_of_today_replaces_the_same_one_of_an_older_version(source: Any, tmp_path: Path) -> None:
    """A new metric gives the evaluation another id, and the cell holds both until its folder goes; a seed counts once."""
    settings = {"kind": "reasoner", "T": 8, "items": 64}
    today = evaluation_id(parse_evaluation(settings))
    record = source.done("a", {8: 0.5})
    (old,) = record.evaluations
    source.ask("table1", ("a", "diagonal"), budgets={"T_max": 8})
    record.evaluations[old]["evaluation"] = settings
    before = collect_scale(source, tmp_path, "smoke")
    assert (before.rows, before.missing) == (1, ()), "nobody has measured it anew"
    place = source.asked[-1]["cells"][0]
    place["evaluations"].append({"id": today, "role": "T_max", "T": 8})
    waiting = collect_scale(source, tmp_path, "smoke")
    assert (waiting.rows, waiting.missing) == (1, (f"a/{today}",))
    stored = record.evaluations[old]
    record.evaluations[today] = stored | {"metrics": {"last_token_accuracy": {"value": 0.75, "items": 64}}}
    after = collect_scale(source, tmp_path, "smoke")
    assert (after.rows, after.missing, numbers(tmp_path)) == (1, (), {("a", 8): 0.75})
    assert read_cells(tmp_path / "smoke").cell["a"]["evaluations"] == [today]
    assert set(read_cells(tmp_path / "smoke").evaluation) == {today}
    for folder in (tmp_path, tmp_path / "fresh"):
        record.evaluations[old] = stored  # its file is still there, and so is the request for it
        again = collect_scale(source, folder, "smoke")
        assert (again.rows, again.missing, again.complete) == (1, (), True)


def test_the_time_that_the_geometry_took_is_a_column(two_cells: Any, tmp_path: Path) -> None:
    two_cells.cells["a"].evaluations["T8-e"]["geometry_seconds"] = 7.2
    collect_scale(two_cells, tmp_path, "smoke")
    rows = load_results(tmp_path, "smoke").rows
    hours = {(row["cell"], row["T"]): row.get("geometry_hours") for row in rows}
    assert hours["a", 8] == pytest.approx(0.002)
    assert hours["a", 16] is None


def test_one_row_holds_one_number_with_its_place_and_its_provenance(two_cells: Any, tmp_path: Path) -> None:
    collected = collect_scale(two_cells, tmp_path, "smoke")
    assert (collected.rows, collected.statuses, collected.complete) == (6, {"done": 2}, True)
    row = next(r for r in load_results(tmp_path, "smoke").rows if r["cell"] == "b" and r["T"] == 16)
    expected = {
        "sweep": "table1",
        "scale": "smoke",
        "axis_method": "G=2",
        "label_method": "G=2",
        "role_T": "T_max",
        "metric": "last_token_accuracy",
        "value": 0.875,
        "items": 100,
        "seed": 0,
        "status": "done",
        "attempt": 1,
        "injection": "conformal",
        "chart": "pairwise",
        "groups": 2,
        "width": 64,
        "T_max": 16,
        "task_group": "A5",
        "commit": "abc",
        "dirty": False,
        "versions": '{"torch":"2.13.0"}',
        "wall_hours": 0.1,
        "device_hours": 0.2,
        "archived": False,
    }
    assert {name: row[name] for name in expected} == expected
    assert "cause" not in row


def test_steps_are_those_of_the_configuration_or_of_the_finished_run(source: Any, tmp_path: Path) -> None:
    """A language model's configuration gives tokens; the step at which a run broke off is not its length."""
    words, text = source.configuration(), source.configuration()
    text["training"] = {"kind": "tokens", "tokens_per_parameter": 2.5}
    for id, config, step in (("words", words, 100), ("text", text, 668)):
        source.done(id, {8: 0.5}, config).result |= {"status": "done", "step": step}
    source.unfinished("broken", "diverged", "loss is nan", text).result = {"status": "diverged", "step": 17}
    source.ask("table4", *((id, id) for id in ("words", "text", "broken")), budgets={"T": 8})
    collect_scale(source, tmp_path, "smoke")
    assert {row["cell"]: row.get("steps") for row in load_results(tmp_path, "smoke").rows} == {
        "words": 100,
        "text": 668,
        "broken": None,
    }


def test_failed_and_diverged_cells_leave_rows_without_a_value_and_missing_ones_leave_none(source: Any, tmp_path: Path) -> None:
    source.unfinished("a", "diverged", "loss is not finite at step 40")
    source.unfinished("b", "failed", "out of memory")
    source.unfinished("c", "running")
    source.ask("table1", ("a", "diagonal"), ("b", "G=1"), ("c", "G=2"), ("d", "G=4"))
    collected = collect_scale(source, tmp_path, "smoke")
    rows = load_results(tmp_path, "smoke").rows
    assert all("value" not in row for row in rows)
    assert {row["cell"]: row["cause"] for row in rows} == {"a": "loss is not finite at step 40", "b": "out of memory"}
    assert collected.statuses == {"diverged": 1, "failed": 1, "planned": 1, "running": 1}
    assert collected.missing == ("b", "c", "d"), "diverged is a result"


def test_a_diverged_cell_never_contributes_a_number(source: Any, tmp_path: Path) -> None:
    source.done("a", {16: 0.3}).presence = Presence(status="diverged", cause="NaN")
    source.ask("table1", ("a", "diagonal"), budgets={"T_max": 16})
    collect_scale(source, tmp_path, "smoke")
    assert numbers(tmp_path) == {}


def test_nothing_to_collect_is_one_line_with_the_remedy(source: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"looprepro sweep SWEEP --scale mini; looprepro collect --scale mini$"):
        collect_scale(source, tmp_path, "mini")
    with pytest.raises(StoreError, match="nothing has been collected at scale mini"):
        load_results(tmp_path, "mini")


def test_rows_of_a_cell_whose_folder_is_gone_stay_and_are_marked_archived(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    del two_cells.cells["a"]
    collected = collect_scale(two_cells, tmp_path, "smoke")
    rows = load_results(tmp_path, "smoke").rows
    assert {row["cell"]: row["archived"] for row in rows} == {"a": True, "b": False}
    assert numbers(tmp_path)["a", 16] == 0.75
    assert (collected.statuses, collected.complete) == ({"archived": 1, "done": 1}, True)
    assert "a" in load_results(tmp_path, "smoke").series("loss")


def test_even_the_requests_may_be_gone(two_cells: Any, source: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    before = numbers(tmp_path)
    two_cells.cells.clear()
    two_cells.asked.clear()
    collect_scale(two_cells, tmp_path, "smoke")
    assert numbers(tmp_path) == before


def test_prune_alone_deletes_archived_rows(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    del two_cells.cells["a"]
    collect_scale(two_cells, tmp_path, "smoke", prune=True)
    results = load_results(tmp_path, "smoke")
    assert {row["cell"] for row in results.rows} == {"b"}
    assert set(results.series("loss")) == {"b"}


def test_a_row_is_replaced_by_the_same_cell_only(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    two_cells.done("a", {8: 0.1, 16: 0.2, 24: 0.3})
    collect_scale(two_cells, tmp_path, "smoke")
    assert numbers(tmp_path) == {("a", 8): 0.1, ("a", 16): 0.2, ("a", 24): 0.3, ("b", 8): 0.4, ("b", 16): 0.875, ("b", 24): 0.8}


def test_a_number_is_not_replaced_by_the_absence_of_one(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    two_cells.unfinished("a", "failed", "started anew and crashed")
    del two_cells.cells["b"].evaluations["T16-e"]
    collect_scale(two_cells, tmp_path, "smoke")
    assert numbers(tmp_path)["a", 16] == 0.75
    assert numbers(tmp_path)["b", 16] == 0.875
    assert [row["cell"] for row in load_results(tmp_path, "smoke").rows].count("a") == 3


def test_a_cell_that_failed_and_then_finished_leaves_no_failed_row(source: Any, tmp_path: Path) -> None:
    source.unfinished("a", "failed", "node lost")
    source.ask("table1", ("a", "diagonal"))
    collect_scale(source, tmp_path, "smoke")
    source.unfinished("a", "running")
    collect_scale(source, tmp_path, "smoke")
    assert load_results(tmp_path, "smoke").rows == []
    source.done("a", {8: 0.1, 16: 0.2, 24: 0.3})
    collect_scale(source, tmp_path, "smoke")
    assert {row["status"] for row in load_results(tmp_path, "smoke").rows} == {"done"}


def test_a_damaged_file_is_named_and_its_number_counted_missing(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    record = two_cells.cells["a"]
    del record.evaluations["T16-e"]
    record.problems.append(Problem("runs/cells/a/evaluations/T16-e.json", "not JSON"))
    collected = collect_scale(two_cells, tmp_path, "smoke")
    assert collected.missing == ("a/T16-e",)
    assert collected.problems[0] == "runs/cells/a/evaluations/T16-e.json: not JSON"
    assert not collected.complete
    assert set(numbers(tmp_path)) == {("a", 8), ("a", 24), ("b", 8), ("b", 16), ("b", 24)}


def test_an_evaluation_or_series_of_the_wrong_shape_is_named_and_the_rest_collected(two_cells: Any, tmp_path: Path) -> None:
    two_cells.cells["a"].evaluations["T8-e"] = {"attempt": 1, "metrics": {"last_token_accuracy": {"items": 3}}}
    two_cells.cells["b"].evaluations["T8-e"] = {"attempt": 1, "metrics": {"m": {"value": 1.0}}, "series": {"s": {"x": [1]}}}
    two_cells.cells["b"].series = [{"schema": 1, "spectrum": {"x": [1.0], "y": []}, "spectrum@0": {"x": [1.0], "y": [0.5]}}]
    collected = collect_scale(two_cells, tmp_path, "smoke")
    assert collected.missing == ("a/T8-e", "b/T8-e")
    assert [line.split(":")[0] for line in collected.problems] == [
        "evaluation T8-e of cell a",
        "evaluation T8-e of cell b",
        "series of cell b",
    ]
    assert load_results(tmp_path, "smoke").series("spectrum@0") == {"b": ([1.0], [0.5])}


def test_a_request_that_cannot_be_read_makes_the_result_incomplete(two_cells: Any, tmp_path: Path) -> None:
    two_cells.broken_requests.append("runs/requests/smoke/table1-1.json is not whole")
    collected = collect_scale(two_cells, tmp_path, "smoke")
    assert (collected.complete, collected.missing) == (False, ())


def test_a_cell_that_two_sweeps_share_has_rows_in_both(two_cells: Any, tmp_path: Path) -> None:
    two_cells.ask("table2", ("a", "diagonal"), budgets={"T_max": 16})
    collect_scale(two_cells, tmp_path, "smoke")
    placed = [(row["sweep"], row["T"]) for row in load_results(tmp_path, "smoke").rows if row["cell"] == "a"]
    assert placed == [("table1", 8), ("table1", 16), ("table1", 24), ("table2", 16)]


def test_the_same_request_twice_makes_no_second_row(two_cells: Any, tmp_path: Path) -> None:
    two_cells.ask("table1", ("a", "diagonal"))
    assert collect_scale(two_cells, tmp_path, "smoke").rows == 6


def test_the_labels_of_the_later_request_stand_in_the_rows(two_cells: Any, tmp_path: Path) -> None:
    for label in ("first", "second"):
        two_cells.ask("table1", ("a", "diagonal"))
        two_cells.asked[-1]["cells"][0]["labels"]["method"] = label
    collect_scale(two_cells, tmp_path, "smoke")
    labels = {(row["cell"], row["label_method"]) for row in load_results(tmp_path, "smoke").rows}
    assert labels == {("a", "second"), ("b", "G=2")}


def test_a_cell_that_is_trained_and_not_measured_leaves_no_curve_either(two_cells: Any, tmp_path: Path) -> None:
    """collect may run between the last step of a cell and its first measurement."""
    measured, two_cells.cells["a"].evaluations = two_cells.cells["a"].evaluations, {}
    collect_scale(two_cells, tmp_path, "smoke")
    found = load_results(tmp_path, "smoke")
    assert {row["cell"] for row in found.rows} == set(found.series("loss")) == set(read_cells(tmp_path / "smoke").cell) == {"b"}
    two_cells.cells["a"].evaluations = measured
    collect_scale(two_cells, tmp_path, "smoke")
    assert set(load_results(tmp_path, "smoke").series("loss")) == {"a", "b"}


def test_a_damaged_measurement_does_not_take_the_curve_of_its_cell(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    for document in two_cells.cells["a"].evaluations.values():
        document["metrics"] = {"last_token_accuracy": "torn"}
    assert collect_scale(two_cells, tmp_path, "smoke").problems
    assert set(load_results(tmp_path, "smoke").series("loss")) == {"a", "b"}


def test_scales_are_kept_apart(two_cells: Any, tmp_path: Path) -> None:
    two_cells.ask("table1", ("a", "diagonal"), scale="mini")
    collect_scale(two_cells, tmp_path, "mini")
    assert {row["scale"] for row in load_results(tmp_path, "mini").rows} == {"mini"}


def test_the_later_attempt_wins_where_two_attempts_logged_a_step(source: Any, tmp_path: Path) -> None:
    record = source.done("a", {16: 0.5})
    record.metrics = [
        [{"step": 0, "loss": 4.0}, {"step": 10, "loss": 3.0}, {"step": 20, "loss": 2.9}],
        [
            {"step": 15, "loss": 2.5},
            {"step": 20, "loss": 2.0, "grad_norm": 1.5},
            {"step": 30, "loss": 1.0},
            {"step": 40, "loss": float("nan")},
        ],
    ]
    record.series = [{"spectrum@0": {"x": [0.4], "y": [0.0]}}, {"spectrum": {"x": [0.3, 0.2], "y": [0.1, -0.1]}}]
    source.ask("table1", ("a", "diagonal"), budgets={"T_max": 16})
    collect_scale(source, tmp_path, "smoke")
    results = load_results(tmp_path, "smoke")
    assert results.series("loss") == {"a": ([0.0, 10.0, 15.0, 20.0, 30.0], [4.0, 3.0, 2.5, 2.0, 1.0])}
    assert results.series("spectrum") == {"a": ([0.3, 0.2], [0.1, -0.1])}
    assert list(results.series_of("a")) == ["grad_norm", "loss", "position_accuracy@T=16", "spectrum", "spectrum@0"]
    assert results.series_table.column_names == ["cell", "series", "x", "y"]


def test_one_loss_curve_under_two_seeds_is_a_warning(source: Any, tmp_path: Path) -> None:
    first = source.done("a", {16: 0.5}, source.configuration(seed=0))
    source.done("b", {16: 0.5}, source.configuration(seed=1)).metrics = first.metrics
    source.done("c", {16: 0.5}, source.configuration("conformal", 1, seed=1)).metrics = first.metrics
    source.done("d", {16: 0.5}, source.configuration(seed=2))
    source.ask("table1", ("a", "diagonal"), ("b", "diagonal"), ("c", "G=1"), ("d", "diagonal"), budgets={"T_max": 16})
    assert collect_scale(source, tmp_path, "smoke").warnings == (
        "b and a have different seeds and the same loss curve, bit for bit: they count once",
    )


def test_equal_content_gives_equal_bytes_in_whatever_order_it_is_read(two_cells: Any, tmp_path: Path) -> None:
    collect_scale(two_cells, tmp_path / "one", "smoke")
    two_cells.asked[0]["cells"].reverse()
    two_cells.cells = dict(reversed(two_cells.cells.items()))
    collect_scale(two_cells, tmp_path / "two", "smoke")
    collect_scale(two_cells, tmp_path / "two", "smoke")
    for name in (RESULTS, SERIES_FILE):
        assert (tmp_path / "one/smoke" / name).read_bytes() == (tmp_path / "two/smoke" / name).read_bytes()


def test_a_full_disk_keeps_the_previous_files(two_cells: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect_scale(two_cells, tmp_path, "smoke")
    before = {path.name: path.read_bytes() for path in (tmp_path / "smoke").iterdir()}
    assert set(before) == {RESULTS, SERIES_FILE, CELLS}
    two_cells.done("a", {8: 0.1, 16: 0.2, 24: 0.3})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full"):
        collect_scale(two_cells, tmp_path, "smoke")
    assert {path.name: path.read_bytes() for path in (tmp_path / "smoke").iterdir()} == before


def test_a_damaged_results_file_is_not_overwritten(two_cells: Any, tmp_path: Path) -> None:
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / RESULTS).write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StoreError, match=r"results\.parquet cannot be read"):
        collect_scale(two_cells, tmp_path, "smoke")
    assert (tmp_path / "smoke" / RESULTS).read_bytes() == b"PAR1 and then nothing"


WRITER = """
    import sys
    from pathlib import Path
    from looprepro.analysis.results import series_table, write_results
    place = {"sweep": "s", "scale": "smoke", "overrides": "", "evaluation": "e"}
    rows = lambda k: [place | {"cell": f"c{i}", "value": k + i / 1e4} for i in range(3000)]
    for k in range(10**9):
        write_results(Path(sys.argv[1]), rows(k), series_table({"c0": {"loss": ([float(k)] * 20000, [0.0] * 20000)}}))
        print(k, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_files(tmp_path: Path) -> None:
    chance = random.Random(0)
    for _ in range(3):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "smoke")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # the first write is done: from now on there is something to lose
            time.sleep(chance.random() * 0.2)
            process.kill()
        results = load_results(tmp_path, "smoke")
        first = results.rows[0]["value"]
        assert [row["value"] for row in results.rows] == [first + i / 1e4 for i in sorted(range(3000), key=lambda i: f"c{i}")]
        assert len(results.series("loss")["c0"][0]) == 20000


def test_ten_thousand_cells_with_three_budgets_collect_in_seconds(source: Any, tmp_path: Path) -> None:
    cells = [(f"cell-{number:05d}", f"G={number // 10}") for number in range(10_000)]
    for number, (name, _) in enumerate(cells):
        source.done(name, {8: 0.5, 16: 0.75, 24: 0.7}, source.configuration("conformal", 2, seed=number % 10))
    source.ask("table1", *cells)
    for _ in range(2):  # the second time everything is merged with what is there
        started = time.process_time()
        assert collect_scale(source, tmp_path, "smoke").rows == 30_000
        assert time.process_time() - started < 10
