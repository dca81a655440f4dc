"""The HTML page: self-contained, complete, safe with hostile text, the same bytes for the same data, clean in a browser."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from looprepro.analysis.claims import judge
from looprepro.analysis.decomposition import Gain
from looprepro.analysis.fill import build_table
from looprepro.analysis.references import Reference, References
from looprepro.analysis.results import Results
from looprepro.analysis.summary import costs, origins
from looprepro.analysis.table import TablePlan
from looprepro.planning.claims import load_claims
from looprepro.report.markdown import to_html
from looprepro.report.page import write_page

ASSUMPTIONS = "# Assumptions\n\nWhat is *not* said.\n\n## Words\n\n| what | value |\n| --- | --- |\n| n | `a < b` |\n"
GAINS = [
    Gain("both (conformal, G = 2)", "T_max", 0.21, 0.18, 0.24, 10, 0.202),
    Gain("tying", "T_max", None, None, None, 0, None),
]


class Elements(html.parser.HTMLParser):
    """Every tag with its attributes, and that each opened one is closed."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def write(results: Results, plan: TablePlan) -> Path:
    stated = References([({"group": "A5", "method": "G=2", "T": "T_max"}, Reference(0.894, "section 5.1"))])
    table = build_table(plan, results.rows, stated)
    hostile = dataclasses.replace(table, notes=(*table.notes, "a <script>alert(1)</script> & more"))
    claims = judge(load_claims("rotate_the_loop"), results)
    wanted = {"table1": {row["cell"]: {one["evaluation"] for one in results.rows} for row in results.rows}}
    return write_page(results, "not the paper's numbers.", [hostile], claims, GAINS, wanted, ASSUMPTIONS)


@pytest.fixture(scope="module")
def page(everything: Results, plan: TablePlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(dataclasses.replace(everything, folder=tmp_path_factory.mktemp("page") / "mini"), plan)


def test_the_page_needs_nothing_but_itself(page: Path) -> None:
    elements = Elements(page.read_text(encoding="utf-8"))
    assert elements.open == []
    for tag, attributes in elements.found:
        assert tag != "script"
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#")), (tag, attributes)
    images = [attributes for tag, attributes in elements.found if tag == "img"]
    assert len(images) == 7
    assert all(attributes["alt"] and int(attributes["width"] or 0) > 100 for attributes in images)
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {(attributes["href"] or "")[1:] for tag, attributes in elements.found if tag == "a"}
    assert anchors == {"claims", "tables", "figures", "cost", "provenance", "assumptions"} <= set(ids)


def test_the_page_says_its_scale_and_holds_every_part(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<title>Rotate the Loop and Fixed-Point Reasoners, reproduced, scale mini</title>" in text
    assert "not the paper&#39;s numbers." in text
    for claim in load_claims("rotate_the_loop"):
        assert f'id="{claim.id}"' in text
    assert "0.894" in text, "the paper's number beside ours"
    assert "n=4/5, 1 diverged" in text
    assert "+0.210" in text
    assert "<code>a &lt; b</code>" in text


def test_text_from_data_cannot_become_markup(page: Path) -> None:
    assert "a &lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page.read_text(encoding="utf-8")


def test_equal_results_give_equal_bytes(page: Path, results: Results, plan: TablePlan) -> None:
    assert write(results, plan).read_bytes() == page.read_bytes()


def test_figures_without_data_are_named(results: Results, plan: TablePlan) -> None:
    bare = dataclasses.replace(results, rows=[row for row in results.rows if not row.get("metric", "").startswith("defect")])
    wanted = {"table1": {row["cell"]: {one["evaluation"] for one in results.rows} for row in results.rows}}
    text = write_page(bare, "note", [], [], [], wanted, "").read_text(encoding="utf-8")
    assert "defect: table1 at scale mini has no Toeplitz defect" in text
    assert "No table has rows at this scale." in text


def test_costs_count_a_shared_cell_once() -> None:
    rows: list[dict[str, Any]] = [
        {"sweep": "table1", "overrides": "", "cell": "a", "status": "done", "device_hours": 1.5},
        {"sweep": "table1", "overrides": "", "cell": "b", "status": "failed"},
        {"sweep": "table2", "overrides": "", "cell": "a", "status": "done", "device_hours": 1.5},
        {"sweep": "table2", "overrides": "training.lr=1", "cell": "c", "status": "done", "device_hours": 2.0},
    ]
    found = {cost.sweep: (cost.statuses, cost.device_hours, cost.unknown) for cost in costs(rows)}
    assert found == {
        "table1": ({"done": 1, "failed": 1}, 1.5, 1),
        "table2": ({"done": 1}, 1.5, 0),
        "table2 training.lr=1": ({"done": 1}, 2.0, 0),
        "all, each cell once": ({"done": 2, "failed": 1}, 3.5, 1),
    }


def test_origins_count_cells_and_name_uncommitted_code() -> None:
    rows: list[dict[str, Any]] = [
        {"cell": "a", "commit": "abc", "dirty": True, "device": "cpu", "versions": '{"torch":"2.13"}'},
        {"cell": "a", "commit": "abc", "dirty": True, "device": "cpu", "versions": '{"torch":"2.13"}'},
        {"cell": "b", "commit": "def", "device": "cpu", "versions": '{"torch":"2.13"}', "archived": True},
    ]
    assert origins(rows) == {
        "commit": [("abc (uncommitted changes)", 1), ("def", 1)],
        "device": [("cpu", 2)],
        "torch": [("2.13", 2)],
        "archived": [("only the rows remain", 1)],
    }


def test_the_markdown_of_our_pages() -> None:
    text = (
        "# A *b*\ntext `x*y*` and **bold**\nsecond [line](there)\n\n"
        "- one\n  more\n- two\n\n| a | b |\n| --- | --- |\n| 1 | <2 |\n"
    )
    assert to_html(text, level=2) == (
        "<h2>A <em>b</em></h2>\n"
        "<p>text <code>x*y*</code> and <strong>bold</strong> second line</p>\n"
        "<ul><li>one\n  more</li><li>two</li></ul>\n"
        '<div class="wide"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
        "<tbody><tr><td>1</td><td>&lt;2</td></tr></tbody></table></div>"
    )


CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
def test_a_browser_shows_every_figure_and_says_nothing(page: Path, tmp_path: Path) -> None:
    """A copy with a probe appended: it writes what it measured into the document, which --dump-dom prints."""
    probe = """<script>addEventListener("load", () => {
      const shown = [...document.images].filter(i => i.naturalWidth > 0 && i.getBoundingClientRect().height > 50);
      const root = document.documentElement, out = document.createElement("pre");
      out.id = "probe";
      out.textContent = `${shown.length}/${document.images.length} overflow ${root.scrollWidth > root.clientWidth}`;
      document.body.append(out);
    });</script></body>"""
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", probe), encoding="utf-8")
    assert CHROMIUM is not None
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", profile, "--dump-dom"]
    for window in ("1200,900", "500,800"):
        arguments = [*command, f"--window-size={window}", copy.as_uri()]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
        assert re.findall(r'<pre id="probe">(.*?)</pre>', done.stdout) == ["7/7 overflow false"], window
        assert "CONSOLE" not in done.stderr, done.stderr
