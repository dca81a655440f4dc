"""Fill the generated blocks of README.md and docs/*.md: what results/ and the plans say, with no figure typed by hand.

    python docs/fill.py            # writes what differs and names it; make readme
    python docs/fill.py --check    # writes nothing; exit code 1 where a page differs

A block stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; NAME is a key of BLOCKS. A block whose numbers are not
there yet says so: the study is filled in parts.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from pilots import PILOTS, pilot_columns, pilot_lines
from sensitivity import SETTING, SPREAD, ablations, in_words, spread_rows

from looprepro.analysis.claim_samples import Samples
from looprepro.analysis.results import RESULTS, Results, load_results
from looprepro.analysis.summary import origins
from looprepro.config.cell import Execution, ReasonerTraining
from looprepro.config.costs import memory_bytes
from looprepro.config.reasoner_formulas import slots_at_once
from looprepro.files.atomic import write_text
from looprepro.files.json_files import read_json
from looprepro.launch.profile import load_profile, time_limit_seconds
from looprepro.planning import Expansion, Plan, available_sweeps, expand, load_sweep, merge
from looprepro.planning import plan as decide
from looprepro.planning.claims import PAPERS, load_claims
from looprepro.planning.estimate import FRACTION_OF_PEAK, GPU_BFLOAT16_FLOPS, GPU_FLOPS
from looprepro.report.fixed_point import FIGURES as FIXED_POINT
from looprepro.report.plots import CAPTIONS

ROOT = Path(__file__).resolve().parents[1]
SCALE = "mini"
PAGES = ("README.md", "docs/mini-study.md", "docs/pilots.md", "docs/reproducing.md", "docs/sensitivity.md")
BLOCK = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)
ANOTHER_SCALE = re.compile(r"^this is about scale|^\S+ has no .* at scale ")
"""What a claim lacks where no run at this scale could decide it."""
VERDICTS = ("supported", "contradicted", "undecided", "single run", "no data")
GPU_BYTES = 80e9
"""Memory of the H100 that the profiles in slurm/ are for."""
NOTHING = f"*Not run yet: nothing has been collected at scale {SCALE}.*"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A GitHub table; columns after the first whose entries are all numbers stand right."""
    texts = [[str(entry).replace("|", "\\|") for entry in row] for row in rows]
    numbers = [all(re.fullmatch(r"[-\d.,–]*", row[i]) for row in texts) and i > 0 for i in range(len(head))]
    lines = [head, ["---:" if number else "---" for number in numbers], *texts]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# What was collected -----------------------------------------------------------------------------------------------------


class Study:
    """results/<scale>/ as its files are, seen from a page: ``up`` leads from the page's folder to the checkout."""

    def __init__(self, folder: Path, scale: str, up: str) -> None:
        self.folder, self.scale, self.up = folder / scale, scale, f"{up}results/{scale}"

    @property
    def results(self) -> Results | None:
        return load_results(self.folder.parent, self.scale) if (self.folder / RESULTS).exists() else None

    @property
    def claims(self) -> Mapping[str, Any] | None:
        path = self.folder / "claims.json"
        return read_json(path) if path.exists() else None

    def table(self, name: str) -> str | None:
        """The product's own markdown of a table."""
        path = self.folder / "tables" / f"{name}.md"
        return path.read_text(encoding="utf-8").rstrip() if path.exists() else None

    def figures(self, *stems: str) -> list[str]:
        """Image links to those figures that were drawn, each with its caption, its pdf and the csv of what it shows."""
        return [
            f"![{stem.replace('_', ' ')}, scale {self.scale}]({self.up}/figures/{stem}.png)\n\n"
            f"{caption(stem)} Scale {self.scale}; as [pdf]({self.up}/figures/{stem}.pdf), [csv]({self.up}/figures/{stem}.csv)."
            for stem in stems
            if (self.folder / "figures" / f"{stem}.png").exists()
        ]


def caption(stem: str) -> str:
    """What the figure of that file name shows, in the words of the report."""
    if stem in FIXED_POINT:
        return FIXED_POINT[stem][2]
    figure, _, sweep = stem.partition("-")
    return CAPTIONS[figure] + (f" `{sweep}`." if sweep else "")


def table1(study: Study) -> str:
    return study.table("table1") or NOTHING.replace("nothing has", "no cell of Table 1 has")


def headline_figures(study: Study) -> str:
    return "\n\n".join(study.figures("groups", "spectrum")) or NOTHING.replace("nothing has", "no cell of Table 1 has")


def every_table(study: Study) -> str:
    parts = []
    for name in available_sweeps():
        if (text := study.table(name)) is not None:
            links = ", ".join(f"[{kind}]({study.up}/tables/{name}.{kind})" for kind in ("tex", "csv", "json"))
            parts.append(f"### {name}\n\n{text}\n- Also as {links}.")
    return "\n\n".join(parts) or NOTHING


def every_figure(study: Study) -> str:
    stems = sorted(path.stem for path in (study.folder / "figures").glob("*.png"))
    return "\n\n".join(study.figures(*stems)) or NOTHING


def coverage(study: Study) -> str:
    """Per sweep: cells wanted today, and how many have all their numbers, whichever sweep had them run; the hours of all."""
    rows = study.results.rows if study.results else []
    cells = {row["cell"]: row for row in rows}
    measured = {(row["cell"], row["evaluation"]) for row in rows if row.get("value") is not None}
    lines, absent = [], []
    for expansion in expansions(study.scale):
        wanted, name = expansion.cells, expansion.sweep.name
        done = [one.id for one in wanted if all((one.id, e.id) in measured for e in one.evaluations)]
        diverged = [one.id for one in wanted if one.id in cells and cells[one.id]["status"] == "diverged"]
        if not done and not diverged:
            absent.append(f"`{name}`")
            continue
        hours = sum(cells[id].get("device_hours") or 0.0 for id in {*done, *diverged})
        lines.append((f"`{name}`", expansion.sweep.place, len(wanted), len(done), len(diverged), f"{hours:.1f}"))
    shown = [table(("sweep", "what", "cells", "finished", "diverged", "core-hours"), lines) if lines else NOTHING]
    if cells:
        total = sum(row.get("device_hours") or 0.0 for row in cells.values())
        shown.append(
            "Finished: with all numbers that the sweep wants. A cell that sweeps share stands in each of their lines; in all, "
            f"{len(cells)} cells took {total:.1f} core-hours."
        )
    if absent:
        shown.append(f"Not run at this scale: {', '.join(absent)}.")
    return "\n\n".join(shown)


def provenance(study: Study) -> str:
    found = study.results
    if found is None:
        return NOTHING
    names = {"commit": "commit", "device": "processor", "threads": "threads", "dtype": "arithmetic", "torch": "torch"}
    known = origins(found.rows)
    rows = [(label, f"`{value}`", count) for name, label in names.items() for value, count in known.get(name, ())]
    return table(("what", "value", "cells"), rows)


# Claims -----------------------------------------------------------------------------------------------------------------


@cache
def paper_of() -> dict[str, str]:
    """Claim -> title of its paper."""
    return {claim.id: title for paper, title in PAPERS.items() for claim in load_claims(paper)}


def claim_rows(claims: Iterable[Mapping[str, Any]]) -> str:
    """What it is judged by stands beside each verdict: a claim in words and its test are not the same."""
    rows = [(c["id"], c["says"], f"**{c['verdict']}**", c["decided"], c["note"]) for c in claims]
    return table(("claim", "what the paper says, in our words", "verdict", "numbers behind it", "how it is judged"), rows)


def claims_summary(study: Study) -> str:
    """Counts, the claims of the primary family and whatever is contradicted; the others by name."""
    document = study.claims
    if document is None:
        return NOTHING
    claims = document["claims"]
    counts = {paper: Counter(c["verdict"] for c in claims if paper_of().get(c["id"]) == paper) for paper in PAPERS.values()}
    shown = [claim for claim in claims if claim["family"] == "primary" or claim["verdict"] == "contradicted"]
    parts = [
        table(
            ("paper", *VERDICTS), [(f"*{paper}*", *(count[verdict] for verdict in VERDICTS)) for paper, count in counts.items()]
        ),
        f"The primary claims, and all that are contradicted at scale {study.scale}"
        f"{'' if study.scale == 'paper' else ', whose puzzles are generated stand-ins and not the benchmarks'}:",
        claim_rows(shown),
    ]
    others = [claim for claim in claims if claim not in shown]
    for verdict in VERDICTS[:-1]:
        if ids := [claim["id"] for claim in others if claim["verdict"] == verdict]:
            parts.append(f"Also {verdict}: {', '.join(ids)}.")
    silent = [claim for claim in others if claim["verdict"] == "no data"]
    for why, ids in why_silent(silent).items():
        parts.append(f"No data, {why}: {', '.join(ids)}.")
    return "\n\n".join(parts)


def why_silent(claims: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Claims without data by the reason: whether a run at this scale could change that."""
    found: dict[str, list[str]] = {
        "since finished runs are missing": [],
        "since they are about another scale": [],
        "since no sweep decides them (theorems, constructions, what is not varied or not run here)": [],
    }
    waiting, other_scale, elsewhere = found.values()
    for claim in claims:
        if any(part["kind"] == "elsewhere" for part in claim["parts"]):
            elsewhere.append(claim["id"])
        elif any(ANOTHER_SCALE.search(part["lacking"] or "") for part in claim["parts"]):
            other_scale.append(claim["id"])
        else:
            waiting.append(claim["id"])
    return {why: ids for why, ids in found.items() if ids}


def every_claim(study: Study) -> str:
    document = study.claims
    if document is None:
        return NOTHING
    parts = []
    for paper in PAPERS.values():
        claims = [claim for claim in document["claims"] if paper_of().get(claim["id"]) == paper]
        parts += [f"### {paper}", *judged(claims)]
    return "\n\n".join(parts)


def judged(claims: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """One table per verdict, what is contradicted first; of claims without data only the reason."""
    for verdict in ("contradicted", "supported", "undecided", "single run"):
        if chosen := [claim for claim in claims if claim["verdict"] == verdict]:
            yield claim_rows(chosen)
    if silent := [claim for claim in claims if claim["verdict"] == "no data"]:
        yield "Without data at this scale:"
        yield table(("claim", "what the paper says, in our words", "why"), [(c["id"], c["says"], c["decided"]) for c in silent])


# Methods ----------------------------------------------------------------------------------------------------------------


def sensitivity(study: Study) -> str:
    """Per ablation: the diagonal and G = 2 under every setting of one choice, and whether their order changes."""
    found = study.results
    if found is None:
        return NOTHING
    return "\n\n".join(
        f"### {one.title}\n\n{table(SETTING, one.rows)}\n\n`{one.sweep}`. {one.sentence}" for one in ablations(Samples(found))
    )


def spread(study: Study) -> str:
    """Table 1 at T_max, group by group: where the seeds of each method lie."""
    rows = spread_rows(Samples(study.results)) if study.results else []
    return table(SPREAD, rows) if rows else NOTHING.replace("nothing has", "no cell of Table 1 has")


def words(study: Study) -> str:
    """What Table 1 and the primary claims come to, in sentences."""
    lines = list(in_words(Samples(study.results))) if study.results else []
    if not lines or study.claims is None:
        return NOTHING.replace("nothing has", "no row of Table 1 has")
    primary = [claim for claim in study.claims["claims"] if claim["family"] == "primary"]
    counts = Counter(claim["verdict"] for claim in primary)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    lines.append(f"**Primary claims** ({', '.join(claim['id'] for claim in primary)}): {verdicts}.")
    head = f"Last-token accuracy of Table 1 at T_max, scale {study.scale}, of the methods whose seeds have all run:"
    return "\n".join([head, "", *(f"- {line}" for line in lines)])


# Pilots ----------------------------------------------------------------------------------------------------------------


def pilots(block: str, study: Study) -> str:
    """What the pilots of one section of docs/pilots.md reached."""
    folder = study.folder.parent / "pilots"
    if not (folder / study.scale / RESULTS).exists():
        return NOTHING.replace("nothing has", "no pilot has")
    section = PILOTS[block]
    return table(pilot_columns(section), pilot_lines(section, load_results(folder, study.scale)))


# Plans ------------------------------------------------------------------------------------------------------------------


@cache
def expansions(scale: str) -> tuple[Expansion, ...]:
    """Every sweep that has ``scale``, expanded."""
    return tuple(expand(sweep, scale) for sweep in map(load_sweep, available_sweeps()) if scale in sweep.scales)


def shown_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def span(values: Sequence[float]) -> str:
    """``0.3–4.6``, or one number where both ends read the same."""
    ends = [shown_hours(min(values)), shown_hours(max(values))]
    return "–".join(dict.fromkeys(ends))


def paper_hours(study: Study) -> str:
    """What ``looprepro plan SWEEP --scale paper`` estimates where nothing has been measured."""
    plans = {expansion.sweep.name: (expansion, decide(expansion.cells, {})) for expansion in expansions("paper")}
    head = (
        "sweep",
        "what",
        "cells",
        "GPUs a cell",
        "hours a cell",
        "all cells",
        "GB a process",
        "processes in 80 GB",
        "jobs a cell",
    )
    measuring = [f"`{name}`" for name, (_, made) in plans.items() if not made.to_run]
    everything = decide(merge(expansions("paper")), {})
    cores = sum(item.hours or 0.0 for item in everything.to_run if item.cell.execution.device == "cpu")
    gpus = sum(item.hours or 0.0 for item in everything.to_run) - cores
    one = max(item.hours or 0.0 for item in plans["table1"][1].to_run)
    return "\n\n".join(
        [
            table(head, [hours_row(expansion, made) for expansion, made in plans.values() if made.to_run]),
            f"All sweeps together, cells that two of them share counted once: about {shown_hours(gpus)} GPU-hours and "
            f"{shown_hours(cores)} core-hours for {everything.wanted} cells. {', '.join(measuring)} train nothing: they "
            "measure the cells of `table4`.",
            "Hours are device hours of training and of measuring every budget, the latter at most (no puzzle halts before the "
            f"last iteration): operations counted by formula, at {FRACTION_OF_PEAK:g} of the peak of an "
            f"H100 by its data sheet ({GPU_FLOPS / 1e12:.0f} TFLOP/s in float32, {GPU_BFLOAT16_FLOPS / 1e12:.0f} in bfloat16). "
            f"The fraction is a guess and **no GPU was measured**. For a cell of Table 1 it gives {shown_hours(one)} hours; "
            f"the sweep's own note reads: {load_sweep('table1').scale('paper').note}",
            "Memory is arithmetic too: parameters, optimiser and what a backward pass keeps. " + fitting(everything),
            "Jobs a cell: time limits of `slurm/h100.yaml` or, for several GPUs, `slurm/h100x8.yaml`, that the longest cell "
            "goes through, if as many cells as fit share a GPU there (`cells_per_job` at most) and slow each other down in "
            "proportion to their number (not measured).",
            measured_fraction(),
        ]
    )


def hours_row(expansion: Expansion, made: Plan) -> tuple[object, ...]:
    """One line of the table of hours."""
    longest = max(made.to_run, key=lambda item: (item.hours or 0.0) / item.cell.execution.ranks)
    execution, hours = longest.cell.execution, [item.hours or 0.0 for item in made.to_run]
    profile = load_profile("h100x8" if execution.ranks > 1 else "h100")
    memory = sorted({memory_bytes(item.cell.cell, item.cell.execution) or 0.0 for item in made.to_run})
    fitting = [int(GPU_BYTES // bytes_) for bytes_ in (memory[-1], memory[0])]
    sharing = 1 if execution.ranks > 1 else max(1, min(profile.cells_per_job, fitting[0]))
    wall = (longest.hours or 0.0) / execution.ranks * sharing
    on_cpu = execution.device == "cpu"
    return (
        f"`{expansion.sweep.name}`",
        expansion.sweep.place,
        len(made.to_run),
        "none, a core" if on_cpu else execution.ranks,
        span(hours),
        shown_hours(sum(hours)),
        span([bytes_ / 1e9 for bytes_ in memory]),
        "" if on_cpu else "–".join(dict.fromkeys(map(str, fitting))),
        "" if on_cpu else math.ceil(wall / (time_limit_seconds(profile.time) / 3600)),
    )


def fitting(everything: Plan) -> str:
    """Which cells want more than one GPU has, and which ones fit because their batch passes in parts."""
    found: dict[tuple[str, str], list[float]] = {}
    for item in everything.to_run:
        if (bytes_ := memory_bytes(item.cell.cell, item.cell.execution) or 0.0) > GPU_BYTES:
            found.setdefault((item.cell.placements[0].sweep, item.cell.cell.task.kind), []).append(bytes_ / 1e9)
    if not found:
        return f"Every cell fits a GPU with 80 GB. {in_parts(everything)}"
    listed = "; ".join(f"{len(of)} on `{kind}` in `{sweep}` ({span(of)} GB)" for (sweep, kind), of in found.items())
    return f"**Not every cell fits a GPU with 80 GB: {listed}.** {in_parts(everything)}"


def in_parts(everything: Plan) -> str:
    """Reasoners whose batch is cut: by task, slots at once and what the whole would need."""
    slots: dict[str, list[int]] = {}
    whole: dict[str, list[float]] = {}
    for item in everything.to_run:
        cell, execution = item.cell.cell, item.cell.execution
        if not isinstance(cell.training, ReasonerTraining):
            continue
        if (at_once := slots_at_once(cell, execution)) < cell.training.batch:
            slots.setdefault(cell.task.kind, []).append(at_once)
            whole.setdefault(cell.task.kind, []).append((memory_bytes(cell, Execution()) or 0.0) / 1e9)
    if not slots:
        return ""
    listed = "; ".join(
        f"{len(of)} on `{kind}` ({span(of)} at once; {span(whole[kind])} GB as a whole)" for kind, of in slots.items()
    )
    return (
        "Fixed-point reasoners train in one process, and where their slots together would need too much, a window passes "
        f"through in parts (`execution.micro_batch`, docs/fixed-point.md). Cells and slots: {listed}."
    )


def measured_fraction() -> str:
    """One sentence on benchmarks/results/matmul_fraction.json, which is about a CPU."""
    document = read_json(ROOT / "benchmarks" / "results" / "matmul_fraction.json")
    machine = document["machine"]
    cases = ", ".join(f"{case['fraction']['median']:.2f} (`{case['case']}`)" for case in document["results"])
    return (
        f"What has been measured is one thread of a CPU ({machine['cpu']}, torch {machine['torch']}): a training step reached "
        f"these fractions of that core's own rate for square matrix products: {cases} "
        f"(`benchmarks/results/matmul_fraction.json`). They say nothing about a GPU, which "
        "`python benchmarks/gpu_check.py` measures."
    )


BLOCKS: Mapping[str, Callable[[Study], str]] = {
    "table1": table1,
    "figures": headline_figures,
    "claims-summary": claims_summary,
    "coverage": coverage,
    "every-table": every_table,
    "every-figure": every_figure,
    "every-claim": every_claim,
    "provenance": provenance,
    "words": words,
    "spread": spread,
    "sensitivity": sensitivity,
    "paper-hours": paper_hours,
    **{block: partial(pilots, block) for block in PILOTS},
}


def filled(text: str, study: Study) -> str:
    """``text`` with every block written anew. :class:`KeyError` where a block has an unknown name."""
    return BLOCK.sub(lambda found: f"{found['head']}\n{BLOCKS[found['name']](study)}\n\n{found['end']}", text)


def main(arguments: Sequence[str]) -> int:
    """Write the pages that differ; with ``--check`` only name them. The exit code."""
    differing = []
    for page in PAGES:
        path = ROOT / page
        before = path.read_text(encoding="utf-8")
        after = filled(before, Study(ROOT / "results", SCALE, "../" if "/" in page else ""))
        if after != before:
            differing.append(page)
            if "--check" not in arguments:
                write_text(path, after)
    print(
        *(f"{page}: {'differs' if '--check' in arguments else 'written'}" for page in differing),
        sep="\n",
        end="\n" * bool(differing),
    )
    return 1 if differing and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
