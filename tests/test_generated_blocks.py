"""The pages that docs/fill.py fills hold what it would write, and it writes what was collected."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from looprepro.analysis.results import series_table, write_results
from looprepro.cli.main import app
from looprepro.launch.profile import available_profiles
from looprepro.planning import available_sweeps, expand, load_sweep
from looprepro.planning.claims import PAPERS, load_claims

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/mini-study.md", "docs/pilots.md", "docs/reproducing.md", "docs/sensitivity.md")


@pytest.fixture(scope="module")
def fill() -> Iterator[ModuleType]:
    """docs/fill.py, which imports from its own folder as a script does."""
    spec = importlib.util.spec_from_file_location("fill", ROOT / "docs" / "fill.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        spec.loader.exec_module(module)
        yield module


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return done.stdout


def rows_of(
    sweep: str, level: Callable[[Mapping[str, str]], float], only: Sequence[str] = (), seeds: str = "0-2"
) -> list[dict[str, Any]]:
    """Rows of a sweep at mini: ``level`` of the axes, and 0.001 more for every seed."""
    rows: list[dict[str, Any]] = []
    for planned in expand(load_sweep(sweep), "mini", seeds=seeds, only=only).cells:
        for place in planned.placements:
            for e in planned.evaluations:
                row: dict[str, Any] = {"sweep": sweep, "scale": "mini", "overrides": "", "cell": planned.id}
                row |= {f"axis_{axis}": role for axis, role in place.axes.items()}
                row |= {"seed": planned.cell.seed, "T": e.evaluation.T, "role_T": e.role, "evaluation": e.id}
                row |= {"metric": "last_token_accuracy", "value": level(place.axes) + 0.001 * planned.cell.seed}
                row |= {"items": 2048, "status": "done", "commit": "abc", "device": "A Processor", "task_group": "A5"}
                rows.append(row | {"archived": False, "versions": '{"torch":"2"}', "device_hours": 0.25})
    return rows


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/ with Table 1 at mini, all ten seeds: G = 2 far above all others, the diagonal above G = 4 and 8, on A5 only."""
    folder = tmp_path_factory.mktemp("made_up")
    levels = {"diagonal": 0.7, "G=1": 0.71, "G=2": 0.9, "G=4": 0.5, "G=8": 0.5, "d/2": 0.6}
    rows = rows_of("table1", lambda axes: levels[axes["method"]], only=["group=A5"], seeds="0-9")
    write_results(folder / "results" / "mini", rows, series_table({}))
    where = ("--scale", "mini", "--results", str(folder / "results"))
    run("collect", *where, "--runs", str(folder / "runs"))
    run("claims", *where)
    return folder / "results"


def test_the_committed_pages_say_what_the_committed_results_say(fill: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """If this fails: make readme, and commit."""
    code = fill.main(["--check"])
    assert (code, capsys.readouterr().out) == (0, "")


def test_every_block_is_on_a_page_and_every_page_has_blocks(fill: ModuleType) -> None:
    assert tuple(fill.PAGES) == PAGES
    found = {
        page: [match["name"] for match in fill.BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))] for page in PAGES
    }
    assert all(found.values())
    assert sorted(name for names in found.values() for name in names) == sorted(fill.BLOCKS)
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.count("<!-- generated") == text.count("<!-- end -->") == len(found[page])


def test_an_unknown_block_is_an_error(fill: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no-such"):
        fill.filled("<!-- generated: no-such -->\n<!-- end -->", fill.Study(tmp_path, "mini", ""))


def test_filling_replaces_only_what_stands_in_blocks_and_twice_is_once(fill: ModuleType, made_up: Path) -> None:
    study = fill.Study(made_up, "mini", "")
    page = "before 0.1\n<!-- generated: table1 -->\nold 0.2\n<!-- end -->\nafter 0.3\n"
    once = fill.filled(page, study)
    assert once.startswith("before 0.1\n<!-- generated: table1 -->\n")
    assert once.endswith("<!-- end -->\nafter 0.3\n")
    assert "old 0.2" not in once
    assert fill.filled(once, study) == once


def test_the_table_is_the_products_own(fill: ModuleType, made_up: Path) -> None:
    block = fill.table1(fill.Study(made_up, "mini", ""))
    assert block == (made_up / "mini" / "tables" / "table1.md").read_text(encoding="utf-8").rstrip()
    assert "| conformal, G = 2 | 0.904 ± 0.001 " in block


def test_contradicted_claims_are_shown_and_every_claim_is_listed(fill: ModuleType, made_up: Path) -> None:
    study = fill.Study(made_up, "mini", "")
    document = json.loads((made_up / "mini" / "claims.json").read_text(encoding="utf-8"))
    verdicts = {claim["id"]: claim["verdict"] for claim in document["claims"]}
    assert verdicts["C27"] == "contradicted", "G = d/2 is below the diagonal here"
    summary = fill.claims_summary(study)
    row = next(line for line in summary.splitlines() if line.startswith("| C27 |"))
    assert "**contradicted**" in row
    assert "-0.100 [" in row
    for id in ("C1", "C4", "C5", "C9", "C12"):
        assert f"| {id} | " in summary
        assert f"**{verdicts[id]}**" in next(line for line in summary.splitlines() if line.startswith(f"| {id} |"))
    counts = re.search(r"^\| \*Rotate the Loop\* \| (.*) \|$", summary, re.MULTILINE)
    assert counts is not None
    assert sum(map(int, counts[1].split(" | "))) == len(load_claims("rotate_the_loop"))
    silent = [c["id"] for c in document["claims"] if c["verdict"] == "no data" and c["family"] != "primary"]
    lines = re.findall(r"^No data, since .*: (.*)\.$", summary, re.MULTILINE)
    assert sorted(id for line in lines for id in line.split(", ")) == sorted(silent)
    assert "F10" in next(line for line in lines if "F11" in line), "theorems stand together"
    assert "C36" in re.search(r"about another scale: (.*)\.$", summary, re.MULTILINE)[1]  # type: ignore[index]
    everything = fill.every_claim(study)
    for paper in PAPERS:
        for claim in load_claims(paper):
            assert everything.count(f"\n| {claim.id} | ") == 1


def test_an_ablation_under_which_the_order_turns_is_said_to_turn_it(fill: ModuleType, tmp_path: Path) -> None:
    levels = {"diagonal": 0.7, "G=1": 0.71, "G=2": 0.9, "G=4": 0.5, "G=8": 0.5, "d/2": 0.6}
    turned = {"diagonal": 0.8, "G=2": 0.6}
    rows = rows_of("table1", lambda axes: levels[axes["method"]], only=["group=A5"], seeds="0-9")
    token_levels = {"with": levels, "without": turned}
    rows += rows_of("ablation_start_token", lambda axes: token_levels[axes["start_token"]][axes["method"]], seeds="0-4")
    rows += rows_of("ablation_word_length", lambda axes: levels[axes["method"]])
    rows += rows_of("ablation_decay_init", lambda axes: 0.7, seeds="0-4")
    write_results(tmp_path / "results" / "mini", rows, series_table({}))
    blocks = fill.sensitivity(fill.Study(tmp_path / "results", "mini", "")).split("### ")
    token, length, decay, phases = (
        next(block for block in blocks if f"`{name}`" in block)
        for name in ("ablation_start_token", "ablation_word_length", "ablation_decay_init", "ablation_omega_init")
    )
    assert "| with start token | 0.705 ± 0.001 | 0.904 ± 0.001 | +0.200 (+0.197 to +0.203) | 10 | — |" in token
    without = (
        "| without start token | 0.802 ± 0.001 | 0.602 ± 0.001 | -0.200 (-0.202 to -0.198) | 5 | -0.400 (-0.403 to -0.397) |"
    )
    assert without in token
    assert token.rstrip().endswith("**The order changes.**")
    assert length.rstrip().endswith("Not all of its cells have been run, so nothing is said of the order.")
    assert "| decay starts at 0.9 | 0.702 ± 0.001 | 0.702 ± 0.001 | +0.000 (-0.002 to +0.002) | 5 | -0.200 (" in decay
    assert "No change of order is shown: 1 of 2 differences are undecided." in decay
    assert "| uniform | 0.705 ± 0.001 | — | — | 10 and 0/5 | — |" in phases, "the diagonal has no phases: Table 1's row"
    lines = fill.spread(fill.Study(tmp_path / "results", "mini", "")).splitlines()
    assert "| A5 | G = 2 | 0.904 | 0.905 | 0.003 | 0.900 | 0.909 | +0.200 (+0.197 to +0.203) | 10 |" in lines


def test_a_pilot_is_one_line_named_by_what_it_changes(fill: ModuleType, tmp_path: Path) -> None:
    rows = rows_of("table1", lambda axes: 0.5, only=["group=A5", "method=diagonal"])
    for row in rows:
        changes = "task.length=16 training.batch=128" if row["seed"] else "task.length=16"
        row |= {"overrides": changes, "T_max": 8, "steps": 3000, "wall_hours": 0.05}
    curves = {row["cell"]: {"loss": ([50.0, 3000.0], [4.0, 0.25 * row["seed"]])} for row in rows}
    write_results(tmp_path / "results" / "pilots" / "mini", rows, series_table(curves))
    lines = fill.BLOCKS["pilots-half-budget"](fill.Study(tmp_path / "results", "mini", "")).splitlines()
    assert lines[0] == "| pilot | seed | T_max/2 | T_max | 3T_max/2 | seen | loss at the end | steps | seconds |"
    assert lines[2:] == [
        "| A5, diagonal | 0 | 0.500 | 0.500 | 0.500 | — | 0.000 | 3000 | 180 |",
        "| A5, diagonal, `training.batch=128` | 1 | 0.501 | 0.501 | 0.501 | — | 0.250 | 3000 | 180 |",
        "| A5, diagonal, `training.batch=128` | 2 | 0.502 | 0.502 | 0.502 | — | 0.500 | 3000 | 180 |",
    ]


def test_table_1_in_words_says_what_is_told_apart_and_what_could_be(fill: ModuleType, made_up: Path) -> None:
    """Ten seeds 0.001 apart: s = 0.003028 on both sides, so the interval is 2.101 * 0.003028 * sqrt(2 / 10) to each side."""
    head, _, a5, primary = fill.words(fill.Study(made_up, "mini", "")).splitlines()
    assert head.startswith("Last-token accuracy of Table 1 at T_max, scale mini")
    assert a5.startswith("- **A5** (G = 1, G = 2, G = 4, G = 8, d/2): these differ from the diagonal: G = 1 (+0.")
    assert re.search(r"reach ±2\.8e-03 \(.*\) to ±2\.8e-03 \(.*\), and less than that", a5)
    assert re.search(r"Means: diagonal 0\.\d+, the others 0\.\d+ \(\S.*\) to 0\.\d+ \(\S.*\); medians: diagonal 0\.\d+", a5)
    assert re.fullmatch(r"- \*\*Primary claims\*\* \(C1, C4, C5, C9, C12\): (\d [a-z ]+, )*2 no data\.", primary)


def test_what_has_not_been_run_is_named(fill: ModuleType, made_up: Path, tmp_path: Path) -> None:
    shown = fill.coverage(fill.Study(made_up, "mini", ""))
    assert re.search(r"^\| `table1` \| Table 1 \| 120 \| 60 \| 0 \| 15.0 \|$", shown, re.MULTILINE)
    assert "60 cells took 15.0 core-hours." in shown
    assert "Not run at this scale: " in shown
    assert "`table2`" in shown
    nothing = fill.Study(tmp_path, "mini", "")
    for name, block in fill.BLOCKS.items():
        if name != "paper-hours":
            assert "Not run yet" in block(nothing), name
    assert all(f"`{name}`" in fill.coverage(nothing) for name in available_sweeps() if "mini" in load_sweep(name).scales)


def test_figures_that_were_not_drawn_are_not_linked(fill: ModuleType, made_up: Path, tmp_path: Path) -> None:
    figures = tmp_path / "mini" / "figures"
    figures.mkdir(parents=True)
    (figures / "groups.png").write_bytes(b"\x89PNG")
    block = fill.headline_figures(fill.Study(tmp_path, "mini", "../"))
    assert block.splitlines()[0] == "![groups, scale mini](../results/mini/figures/groups.png)"
    assert block.count("](") == 3
    assert "[csv](../results/mini/figures/groups.csv)" in block
    assert fill.caption("groups-table8") == fill.caption("groups") + " `table8`."
    assert fill.caption("fprm_fig2a").startswith("Figure 2a: ")


def test_the_hours_are_those_of_plan(fill: ModuleType, tmp_path: Path) -> None:
    """Where nothing is measured; the sum counts shared cells once."""
    where = ("--scale", "paper", "--json", "--runs", str(tmp_path), "--results", str(tmp_path))
    block = fill.paper_hours(fill.Study(tmp_path, "mini", ""))
    rows = {match[1]: match[0].strip("| ").split(" | ") for match in re.finditer(r"^\| `(\w+)` \|.*$", block, re.MULTILINE)}
    for sweep in ("table1", "table4", "fprm_table1"):
        document = json.loads(run("plan", sweep, *where))
        assert int(rows[sweep][2]) == document["to_run"]
        assert float(rows[sweep][5].replace(",", "")) == pytest.approx(document["device_hours"], abs=0.5)
    document = json.loads(run("plan", "--all", *where))
    total = re.search(r"about ([\d,]+) GPU-hours and ([\d.]+) core-hours for (\d+) cells", block)
    assert total is not None
    assert float(total[1].replace(",", "")) + float(total[2]) == pytest.approx(document["device_hours"], abs=1)
    assert int(total[3]) == document["wanted"]
    assert "no GPU was measured" in block
    measured = json.loads((ROOT / "benchmarks/results/matmul_fraction.json").read_text(encoding="utf-8"))["results"]
    assert all(f"{case['fraction']['median']:.2f} (`{case['case']}`)" in block for case in measured)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target]
    assert targets
    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]
    assert [target for target in missing if not target.endswith("results/mini/") and not target.endswith("results/mini")] == []
    if (ROOT / "results" / "mini").exists():
        assert missing == []


def commands(page: str) -> list[list[str]]:
    """The words of every looprepro command in the code blocks of a page; a line that ends in a backslash goes on."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    looprepro ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_every_command_of_the_page_is_one() -> None:
    """By name, options, sweeps and profiles; nothing is run."""
    group: Any = typer.main.get_command(app)
    found = commands("docs/reproducing.md")
    assert len(found) > 12
    for words in found:
        command = group.commands[words[0]]
        arguments = words[1:]
        if hasattr(command, "commands"):
            command, arguments = command.commands[words[1]], words[2:]
        context = command.make_context(words[0], list(arguments), resilient_parsing=False)
        for target in context.params.get("targets") or ():
            assert "=" in target or target in available_sweeps()
        if profile := context.params.get("profile"):
            assert profile in (*available_profiles(), "mine", "mine8")


def test_the_page_runs_every_sweep_of_scale_paper() -> None:
    named = {word for words in commands("docs/reproducing.md") if words[0] == "sweep" for word in words}
    assert {name for name in available_sweeps() if "paper" in load_sweep(name).scales} <= named
