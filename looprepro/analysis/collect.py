"""runs/ -> results/<scale>/: read every requested cell, merge with what was collected before, replace the three files.

Merging (the archive): rows of a cell whose folder is gone stay and are marked archived; rows are replaced only by the
same cell, and a measurement by a later version of itself; ``prune`` alone deletes. Where runs/ has no cell of the scale at
all, as in a fresh clone with committed results, that says nothing about any of them: all stays as it is, mark included, to
the byte. Numbers are never replaced by the absence of numbers, with one exception: where a file of an existing cell is
damaged, the cell is named and what the file said is missing until it is run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from looprepro.analysis.cells import CELLS, read_cells, write_cells
from looprepro.analysis.placements import Placement, placements
from looprepro.analysis.results import (
    Points,
    folder_of,
    merge_series,
    nothing_collected,
    read_rows,
    read_series,
    write_results,
)
from looprepro.analysis.rows import ENDED, cell_rows, cell_series, digest_of, unusable
from looprepro.analysis.schema import Row
from looprepro.analysis.source import Document, Source
from looprepro.analysis.superseded import superseded, superseded_numbers
from looprepro.analysis.texts import TextsSeen
from looprepro.files.json_files import canonical_json
from looprepro.store import Problem

Curves = dict[tuple[str, str], dict[int, str]]
"""(Configuration without its seed, loss digest) -> seed -> cell."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collect found and wrote."""

    scale: str
    folder: Path
    rows: int
    """Rows in results.parquet now."""
    statuses: dict[str, int]
    """Requested cells by status; ``archived`` for those of which only rows remain."""
    missing: tuple[str, ...]
    """Requested cells that lack a number: "<cell>" (nothing of it) or "<cell>/<evaluation>"."""
    problems: tuple[str, ...]
    """One line per file that cannot be trusted, with its path; what it would have said counts as missing."""
    warnings: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Every requested number is there."""
        return not self.missing and not self.problems


def collect_scale(source: Source, results_dir: Path, scale: str, *, prune: bool = False) -> Collected:
    """Collect ``scale`` from ``source`` into ``results_dir/scale``. Raises :class:`StoreError` where there is nothing to do.

    10,000 cells with three evaluations each take a few seconds. A kill at any moment and a full disk leave the previous
    files as they were.
    """
    folder = folder_of(results_dir, scale)
    old_rows, old_series, cells = read_rows(folder), read_series(folder), read_cells(folder)
    wanted = placements(source.requests(scale))
    if not wanted and not old_rows:
        raise nothing_collected(folder, scale)

    fresh: dict[str, list[Row]] = {}
    series: dict[str, dict[str, Points]] = {}
    damaged: set[str] = set()
    statuses: Counter[str] = Counter()
    problems = list(source.request_problems(scale))
    curves: Curves = {}
    texts = TextsSeen()
    warnings: list[str] = []
    replaced: set[tuple[str, str]] = set()
    diverged: set[str] = set()
    for record in source.records(sorted(wanted)):
        statuses[record.presence.status] += 1
        if record.presence.status == "diverged":
            diverged.add(record.id)
        found = [*record.problems, *unusable(record)]
        problems += map(_line, found)
        if found:
            damaged.add(record.id)
        texts.add(record, {place.sweep for place in wanted[record.id]})
        settings = {id: document.get("evaluation") for id, document in record.evaluations.items()}
        for id in superseded(settings, record.evaluations):
            del record.evaluations[id]
            replaced.add((record.id, id))
        drawn = cell_series(record)
        if drawn and record.presence.status in ENDED:  # what is missing leaves neither rows nor half a curve
            series[record.id] = drawn
        digest = digest_of(drawn.get("loss")) if record.presence.status in ENDED else None
        fresh[record.id] = cell_rows(record, wanted[record.id], digest)
        if any("value" in row for row in fresh[record.id]) or (fresh[record.id] and record.id not in cells.cell):
            cells.add(record)
        if digest is not None and "seed" in record.config:
            repeated = _repeated_curve(curves, record.id, record.config, digest)
            warnings += [repeated] if repeated else []

    existing = set(fresh) | source.existing({row["cell"] for row in old_rows} - set(fresh))
    rows = _merge(old_rows, fresh, existing, damaged, prune)
    settings = {id: line["settings"] for id, line in cells.evaluation.items()}
    replaced |= superseded_numbers(settings, {(row["cell"], row["evaluation"]) for row in rows if "value" in row})
    rows = [row for row in rows if (row["cell"], row.get("evaluation")) not in replaced]
    cells.forget(replaced)
    with_rows = {row["cell"] for row in rows}
    archived = with_rows - existing
    statuses["archived"] += len(archived & set(wanted))
    statuses["planned"] += len(set(wanted) - set(fresh) - archived)
    if unknown := cells.keep(with_rows):
        warnings.append(f"{unknown} cells have rows and no line in {CELLS}: an older version collected them, and runs/ is gone")
    write_cells(folder, cells)
    # A cell that has been trained and not yet measured leaves no row, so no curve either.
    write_results(folder, rows, merge_series(old_series, series, with_rows | damaged))
    return Collected(
        scale,
        folder,
        len(rows),
        {status: count for status, count in sorted(statuses.items()) if count},
        tuple(_missing(wanted, rows, replaced, diverged)),
        tuple(sorted([*problems, *texts.problems()])),
        tuple(warnings),
    )


def _merge(old: Iterable[Row], fresh: dict[str, list[Row]], existing: set[str], damaged: set[str], prune: bool) -> list[Row]:
    """All fresh rows, and the old rows that no fresh row of the same cell replaces."""
    measured = {_place(row) for rows in fresh.values() for row in rows if "value" in row}
    kept: list[Row] = []
    for row in old:
        cell = row["cell"]
        if cell not in existing:
            if not prune:
                kept.append(row | {"archived": True} if existing else row)
        elif cell not in fresh:
            kept.append(row | {"archived": False})  # nobody asks for it any more, so it was not read
        elif cell not in damaged and "value" in row and _place(row) not in measured:
            kept.append(row)  # the cell has no number to put in the place of this one
    numbers = {_place(row) for row in kept if "value" in row}
    return kept + [row for rows in fresh.values() for row in rows if "value" in row or _place(row) not in numbers]


def _place(row: Row) -> tuple[object, ...]:
    """What a fresh row must share with an old one to replace it."""
    axes = tuple(sorted((name, value) for name, value in row.items() if name.startswith("axis_")))
    return row["cell"], row["sweep"], row["overrides"], row.get("evaluation"), axes


def _missing(
    wanted: dict[str, list[Placement]], rows: Iterable[Row], replaced: set[tuple[str, str]], diverged: set[str]
) -> Iterable[str]:
    """Cells without any number, and single evaluations of the others. A cell's numbers serve every sweep that asks for it;
    one that diverged is a result and has none."""
    found = replaced | {(row["cell"], row["evaluation"]) for row in rows if "value" in row}
    cells = {cell for cell, _ in found}
    for cell in sorted(wanted.keys() - diverged):
        if cell not in cells:
            yield cell
            continue
        evaluations = {name for place in wanted[cell] for name in place.evaluations}
        yield from (f"{cell}/{name}" for name in sorted(evaluations) if (cell, name) not in found)


def _repeated_curve(curves: Curves, cell: str, config: Document, digest: str) -> str | None:
    """A warning where the same loss curve, bit for bit, has been seen under another seed of the same configuration."""
    configuration = canonical_json({name: value for name, value in config.items() if name != "seed"})
    seeds = curves.setdefault((configuration, digest), {})
    twin = next((other for seed, other in seeds.items() if seed != config["seed"]), None)
    seeds.setdefault(config["seed"], cell)
    if twin is None:
        return None
    return f"{cell} and {twin} have different seeds and the same loss curve, bit for bit: they count once"


def _line(problem: Problem) -> str:
    return problem.reason if problem.path in problem.reason else f"{problem.path}: {problem.reason}"
