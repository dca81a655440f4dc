"""Five renderings of one table: stored byte for byte, and the same numbers in each."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.fill import build_table
from looprepro.analysis.references import References
from looprepro.analysis.table import Table, TablePlan
from looprepro.files.errors import ConfigError
from looprepro.report.latex import escape
from looprepro.report.numbers import difference, measured, number
from looprepro.report.tables import SUFFIXES, render, write_tables

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def table(plan: TablePlan, rows: list[dict[str, Any]], references: References) -> Table:
    return build_table(plan, rows, references)


@pytest.mark.parametrize("format", list(SUFFIXES))
def test_a_table_renders_byte_for_byte_as_stored(table: Table, format: str) -> None:
    stored = GOLDEN / f"table1.{SUFFIXES[format]}"
    assert render(table, format) == stored.read_text(encoding="utf-8")


def test_the_files_of_a_scale_are_the_renderings(table: Table, tmp_path: Path) -> None:
    paths = write_tables([table], tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"mini/tables/table1.{suffix}" for suffix in ("txt", "md", "tex", "csv", "json")
    ]
    assert (tmp_path / "mini/tables/table1.md").read_bytes() == (GOLDEN / "table1.md").read_bytes()


def printed(text: str) -> list[tuple[str, str]]:
    """Every mean and error in a rendering, in order."""
    return re.findall(r"(\d\.\d{3}) (?:±|\\pm) (\d\.\d{3})", text)


def test_all_formats_hold_the_same_numbers_in_the_order_of_their_layout(table: Table) -> None:
    expected = printed(render(table, "md"))
    assert len(expected) == 30
    assert printed(render(table, "rich")) == expected
    stacked = [expected[6 * row + 3 * group + column] for group in range(2) for row in range(5) for column in range(3)]
    assert printed(render(table, "latex")) == stacked
    assert [printed(line["text"])[0] for line in csv.DictReader(io.StringIO(render(table, "csv")))] == expected
    assert [printed(entry["text"])[0] for entry in json.loads(render(table, "json"))["entries"]] == expected


def test_csv_and_json_hold_the_mean_that_the_text_rounds(table: Table) -> None:
    first = json.loads(render(table, "json"))["entries"][0]
    # diagonal, A5, T = 8 without the diverged seed 3: 0.40 + 0.02 k with k from (seed * 7 + 24 + 8) % 5 - 2
    seeds = [0.40 + 0.02 * ((seed * 7 + 24 + 8) % 5 - 2) for seed in (0, 1, 2, 4)]
    assert first["mean"] == pytest.approx(sum(seeds) / 4, abs=1e-12)
    line = next(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert float(line["mean"]) == first["mean"]
    assert float(line["se"]) == first["se"]


def test_a_narrow_terminal_gets_one_block_per_group_with_the_same_numbers(table: Table) -> None:
    narrow = render(table, "rich", width=100)
    assert max(map(len, narrow.splitlines()[:-4])) <= 100
    assert sorted(printed(narrow)) == sorted(printed(render(table, "rich")))


def test_gaps_stand_beside_the_number(table: Table) -> None:
    text = render(table, "md")
    assert "(n=4/5, 1 diverged)" in text
    assert "(n=4/5, 1 failed)" in text
    assert "(n=4/5, 1 missing)" in text
    assert not table.complete


def test_an_unknown_format_names_the_known_ones(table: Table) -> None:
    with pytest.raises(ConfigError, match="rich, md, latex, csv, json"):
        render(table, "html")


@pytest.mark.parametrize(
    ("mean", "se", "decimals", "text"),
    [
        (0.8941, 0.01249, 3, "0.894 ± 0.012"),
        (0.8941, None, 3, "0.894"),
        (None, None, 3, "—"),
        (22.451, 0.5, 2, "22.45 ± 0.50"),
        (0.9, 0.0001, 3, "0.900 ± <0.001"),
        (0.9, 0.0, 3, "0.900 ± 0.000"),
        (3.21e-13, 4.5e-14, 3, "3.2e-13 ± 4.5e-14"),
        (0.0, 0.0, 3, "0.000 ± 0.000"),
    ],
)
def test_a_number_prints_with_sensible_digits(mean: float | None, se: float | None, decimals: int, text: str) -> None:
    assert measured(mean, se, decimals) == text


def test_a_difference_always_has_its_sign() -> None:
    assert (difference(0.0123, 3), difference(-0.0123, 3), number(-0.5, 1)) == ("+0.012", "-0.012", "-0.5")


def test_latex_escapes_what_would_not_compile() -> None:
    assert escape("50% of T_max & {a} ± Möbius ☃") == r"50\% of T\_max \& \{a\} $\pm$ Mobius ?"


def test_latex_is_ascii_with_balanced_braces_and_equal_columns(table: Table) -> None:
    text = render(table, "latex")
    assert text.isascii()
    assert text.count("{") == text.count("}")
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {4}  # A5 and S5 stacked
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def test_latex_compiles_as_it_is_and_fits_the_page(table: Table, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex with booktabs (Debian: texlive-latex-recommended)")
    body = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + render(table, "latex") + "\\end{document}\n"
    (tmp_path / "page.tex").write_text(body, encoding="ascii")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "Overfull" not in run.stdout
