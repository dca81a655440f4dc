"""``looprepro claims`` and ``looprepro report`` on collected results of two cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from looprepro.analysis.results import series_table, write_results
from looprepro.cli.main import app
from looprepro.files.errors import ConfigError, StoreError
from looprepro.planning import expand, load_sweep


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table 1 at smoke, finished, G = 1 above the diagonal by far on A5."""
    folder = tmp_path_factory.mktemp("claims") / "results"
    rows: list[dict[str, Any]] = []
    for planned in expand(load_sweep("table1"), "smoke").cells:
        injection, task = planned.cell.model.injection, planned.cell.task
        for place in planned.placements:
            for e in planned.evaluations:
                level = 0.9 if injection.groups == 1 else 0.2
                row = {"sweep": "table1", "scale": "smoke", "overrides": "", "cell": planned.id, "seed": planned.cell.seed}
                row |= {f"axis_{axis}": role for axis, role in place.axes.items()}
                row |= {"T": e.evaluation.T, "role_T": e.role, "evaluation": e.id, "metric": "last_token_accuracy"}
                row |= {"value": level + 0.001 * planned.cell.seed, "items": 256, "status": "done", "device_hours": 0.001}
                row |= {"task_group": task.group, "injection": injection.method, "groups": injection.groups, "width": 16}
                rows.append({name: value for name, value in row.items() if value is not None})
    write_results(folder / "smoke", rows, series_table({}))
    return folder


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, ConfigError | StoreError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_claims_as_text_and_as_json_are_the_same_verdicts(results: Path) -> None:
    document = json.loads(run("claims", "--scale", "smoke", "--results", str(results), "--json"))
    verdicts = {claim["id"]: claim["verdict"] for claim in document["claims"]}
    assert (verdicts["C4"], verdicts["C5"], verdicts["C6"], verdicts["C9"]) == (
        "supported",
        "contradicted",
        "no data",
        "no data",
    )
    assert document == json.loads((results / "smoke" / "claims.json").read_text(encoding="utf-8"))
    assert document["scale"] == "smoke"
    deciding = next(claim for claim in document["claims"] if claim["id"] == "C4")["deciding"]
    assert (deciding["n"], deciding["statistic"]) == (2, "Welch")
    assert deciding["low"] < deciding["effect"] == pytest.approx(0.7)
    text = run("claims", "--scale", "smoke", "--results", str(results))
    for id, verdict in verdicts.items():
        assert f"{id:<5} {verdict.upper()}" in text


def test_a_single_claim_keeps_the_correction_of_its_whole_family(results: Path) -> None:
    document = json.loads(run("claims", "C4", "--scale", "smoke", "--results", str(results), "--json"))
    (claim,) = document["claims"]
    assert claim["p_adjusted"] > claim["p"]
    assert len(json.loads((results / "smoke" / "claims.json").read_text(encoding="utf-8"))["claims"]) > 39


def test_both_papers_are_judged_and_one_can_be_chosen(results: Path) -> None:
    document = json.loads(run("claims", "--scale", "smoke", "--results", str(results), "--json"))
    ids = [claim["id"] for claim in document["claims"]]
    assert (ids[0], ids[-1]) == ("C1", "F58")
    assert "Fixed-Point Reasoners: stand-ins, not the benchmarks" in document["note"]
    before = (results / "smoke" / "claims.json").read_text(encoding="utf-8")
    text = run("claims", "--scale", "smoke", "--results", str(results), "--paper", "fixed_point_reasoners")
    assert text.startswith("Claims of Fixed-Point Reasoners, judged at scale smoke: 58 no data\nScale smoke: stand-ins")
    assert "Decomposition" not in text
    assert (results / "smoke" / "claims.json").read_text(encoding="utf-8") == before, "the file holds both papers"


def test_figures_of_the_second_paper_need_its_sweeps(results: Path) -> None:
    with pytest.raises(StoreError, match=r"no sweep of Fixed-Point Reasoners was collected at scale smoke.*fprm_fig1"):
        run("plot", "fixed_point", "--scale", "smoke", "--results", str(results))


def test_an_unknown_claim_and_an_empty_folder_are_one_line(results: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no claim is called C99"):
        run("claims", "C99", "--results", str(results))
    with pytest.raises(StoreError, match="nothing has been collected at scale smoke"):
        run("claims", "--results", str(tmp_path))


def test_the_report_holds_claims_tables_and_assumptions(results: Path) -> None:
    assert run("report", "--scale", "smoke", "--results", str(results)).strip() == str(results / "smoke" / "report.html")
    page = (results / "smoke" / "report.html").read_text(encoding="utf-8")
    assert "State tracking by number of groups (Table 1), last token accuracy, scale smoke" in page
    assert '<strong>C4</strong> <span class="verdict supported">supported</span>' in page
    assert "Start token" in page
    assert "gram: table1 at scale smoke has no Gram matrix of a finished cell" in page
