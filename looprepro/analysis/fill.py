"""Fill a table: join what a sweep wants with the rows that were collected.

The join is by cell and evaluation identity, so a row of an older configuration cannot slip into a mean. Whatever a
sample lacks is counted beside it, and whatever a reader must know before quoting a number becomes a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from looprepro.analysis.references import Reference, References
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import summarise
from looprepro.analysis.table import ColumnHead, Comparison, Entry, RowHead, Table, TablePlan, WantedCell, WantedEvaluation
from looprepro.files.errors import ConfigError
from looprepro.planning.keys import nearest

Places = tuple[tuple[str, ...], tuple[str, ...]]
"""Row roles and column roles: the place of an entry."""

SOURCES = {
    "third party": "quoted from it by third parties",
    "other paper": "of the other models' own papers, quoted by third parties",
    "independent": "measured by others on its released checkpoint",
}
"""How a number that the paper's text does not state is called in a note."""
MIXTURES = {
    "device": "devices",
    "dtype": "number formats",
    "threads": "thread counts",
    "compile": "compile modes",
    "kernels": "kinds of kernels",
    "tf32": "precisions of products",
}
"""Columns whose values change rounding or hardware: a table that mixes them says so."""


@dataclass(frozen=True)
class _Found:
    """What rows say, keyed by identity."""

    values: Mapping[tuple[str, str], float]
    statuses: Mapping[str, str]
    digests: Mapping[str, str]


def check_metric(plan: TablePlan, rows: Iterable[Row]) -> None:
    """:class:`ConfigError` where the cells of ``plan`` were measured and none of it is the table's metric: it is misspelt."""
    wanted = {evaluation.id for cell in plan.wanted for evaluation in cell.evaluations}
    metrics = {
        row["metric"] for row in rows if row.get("evaluation") in wanted and "metric" in row and row["sweep"] == plan.name
    }
    if metrics and plan.metric not in metrics:
        raise ConfigError(
            f"no cell of {plan.name} has the metric '{plan.metric}'",
            f"Did you mean '{nearest(plan.metric, metrics)}'? There are {', '.join(sorted(metrics))}",
        )


def build_table(
    plan: TablePlan,
    rows: Iterable[Row],
    references: References | None = None,
    *,
    drop_diverged: bool = False,
    compare: bool = False,
) -> Table:
    """Fill ``plan`` from ``rows``.

    ``drop_diverged`` no longer counts diverged seeds as wanted, and the table says so. ``compare`` adds the difference to
    the paper's numbers, at scale paper only: elsewhere the two were not measured on the same thing.
    """
    if compare and (plan.scale != "paper" or plan.overrides):
        raise ConfigError(
            f"scale {plan.scale}{' with overrides' * bool(plan.overrides)} is not the paper's protocol, so a difference to its "
            "numbers says nothing",
            "Leave --compare out, or use --scale paper without overrides",
        )
    rows = list(rows)
    references = references or References(())
    found = _found(rows, plan)
    groups = _groups(plan)
    row_heads = tuple(RowHead(roles, labels) for roles, labels in _heads(plan, plan.rows))
    warnings: list[str] = []
    columns: list[ColumnHead] = []
    by_column: list[list[Entry]] = []
    for roles, labels in _heads(plan, plan.columns):
        column_roles = dict(zip(plan.columns, roles, strict=True))
        entries = []
        for head in row_heads:
            row_roles = dict(zip(plan.rows, head.roles, strict=True))
            reference = references.get(row_roles | column_roles)
            candidates = groups.get((head.roles, roles), ())
            entries.append(_entry(candidates, found, reference, drop_diverged, compare, warnings))
        paper = _paper_label(plan, column_roles.get("T")) if any(entry.reference for entry in entries) else None
        columns.append(ColumnHead(roles, labels, paper))
        by_column.append(entries)
    return Table(
        plan.name,
        plan.title,
        plan.place,
        plan.scale,
        plan.metric,
        plan.decimals,
        plan.rows,
        plan.columns,
        row_heads,
        tuple(columns),
        tuple(zip(*by_column, strict=True)),
        (*_notes(plan, rows, by_column, drop_diverged), *dict.fromkeys(warnings)),
        plan.overrides,
        drop_diverged,
        compare,
    )


def _found(rows: Sequence[Row], plan: TablePlan) -> _Found:
    values, statuses, digests = {}, {}, {}
    for row in rows:
        if row["scale"] != plan.scale:
            continue
        statuses[row["cell"]] = row["status"]
        if "loss_digest" in row:
            digests[row["cell"]] = row["loss_digest"]
        if row.get("metric") == plan.metric and row.get("value") is not None and row["status"] == "done":
            values[row["cell"], row["evaluation"]] = row["value"]
    return _Found(values, statuses, digests)


def _heads(plan: TablePlan, axes: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Roles and labels along ``axes``, nested in the order in which the sweep lists each axis."""
    order = [{role: place for place, role in enumerate(plan.order.get(axis, ()))} for axis in axes]
    heads: dict[tuple[str, ...], tuple[str, ...]] = {}
    budgets: dict[str, set[int]] = {}
    for cell in plan.wanted:
        for evaluation in cell.evaluations:
            budgets.setdefault(evaluation.role, set()).add(evaluation.T)
    for cell in plan.wanted:
        for evaluation in cell.evaluations:
            roles = _roles(cell, evaluation, axes)
            for position, role in enumerate(roles):
                order[position].setdefault(role, len(order[position]))
            one = len(budgets[evaluation.role]) == 1
            heads.setdefault(roles, tuple(_label(cell, evaluation, axis, one) for axis in axes))
    return sorted(heads.items(), key=lambda head: [order[i][role] for i, role in enumerate(head[0])])


def _roles(cell: WantedCell, evaluation: WantedEvaluation, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(evaluation.role if axis == "T" else cell.roles[axis] for axis in axes)


def _label(cell: WantedCell, evaluation: WantedEvaluation, axis: str, one: bool) -> str:
    """``one``: the role of the budget is the same T everywhere; where it is not, only its role says what it is."""
    if axis == "T":
        return f"T = {evaluation.T}" if one else evaluation.role
    return cell.labels.get(axis, cell.roles[axis])


def _groups(plan: TablePlan) -> dict[Places, list[tuple[WantedCell, WantedEvaluation]]]:
    """(Row roles, column roles) -> what belongs there."""
    groups: dict[Places, list[tuple[WantedCell, WantedEvaluation]]] = {}
    for cell in plan.wanted:
        for evaluation in cell.evaluations:
            place = (_roles(cell, evaluation, plan.rows), _roles(cell, evaluation, plan.columns))
            groups.setdefault(place, []).append((cell, evaluation))
    return groups


def _entry(
    candidates: Sequence[tuple[WantedCell, WantedEvaluation]],
    found: _Found,
    reference: Reference | None,
    drop_diverged: bool,
    compare: bool,
    warnings: list[str],
) -> Entry:
    seeds: dict[int, tuple[WantedCell, WantedEvaluation]] = {}
    for cell, evaluation in candidates:
        first, _ = seeds.setdefault(cell.seed, (cell, evaluation))
        if first.id != cell.id:
            warnings.append(f"Two cells with seed {cell.seed} fall on one entry: {first.id} counts, {cell.id} does not.")
    values: list[float] = []
    curves: dict[str, str] = {}
    counts = {"missing": 0, "failed": 0, "diverged": 0, "repeated": 0}
    for cell, evaluation in seeds.values():
        value = found.values.get((cell.id, evaluation.id))
        digest = found.digests.get(cell.id)
        if value is None:
            status = found.statuses.get(cell.id, "missing")
            counts[status if status in ("failed", "diverged") else "missing"] += 1
        elif digest is not None and digest in curves:
            counts["repeated"] += 1
            warnings.append(f"{cell.id} repeats the loss curve of {curves[digest]} bit for bit: the two count once.")
        else:
            values.append(value)
            if digest is not None:
                curves[digest] = cell.id
    summary = summarise(values)
    comparison = None
    if compare and reference is not None and summary.mean is not None:
        inside = None if summary.low is None or summary.high is None else summary.low <= reference.value <= summary.high
        comparison = Comparison(summary.mean - reference.value, inside)
    wanted = len(seeds) - (counts["diverged"] if drop_diverged else 0)
    return Entry(
        summary.mean,
        summary.se,
        summary.low,
        summary.high,
        summary.n,
        wanted,
        counts["missing"],
        counts["failed"],
        counts["diverged"],
        counts["repeated"],
        reference,
        comparison,
    )


def _paper_label(plan: TablePlan, budget_role: str | None) -> str:
    if plan.scale == "paper":
        return "paper"
    parts = ["paper"]
    if plan.paper_width is not None:
        parts.append(f"width {plan.paper_width}")
    budget = plan.paper_budgets.get(budget_role or "")
    if budget is not None:
        parts.append(f"T = {budget}")
    return ", ".join(parts)


def _notes(plan: TablePlan, rows: Sequence[Row], columns: Sequence[Sequence[Entry]], drop_diverged: bool) -> Iterable[str]:
    """What a reader must know before quoting a number."""
    entries = [entry for column in columns for entry in column]
    complete = {entry.n for entry in entries if entry.complete and entry.wanted}
    if any(entry.n > 1 for entry in entries):
        usual = f"; n = {complete.pop()} where an entry says nothing else" if len(complete) == 1 else ""
        yield f"Mean ± standard error over distinct seeds: s/√n, n - 1 in s{usual}."
    elif any(entry.n for entry in entries):
        yield "One seed per entry: no standard error exists."
    if plan.note:
        yield f"Scale {plan.scale}: {plan.note}"
    if plan.overrides:
        yield f"Overrides: {' '.join(plan.overrides)}."
    if drop_diverged:
        dropped = sum(entry.diverged for entry in entries)
        yield f"Diverged seeds are left out by request (drop_diverged): {dropped} in all entries together."
    if any(entry.reference for entry in entries):
        yield "A dash in the paper's column: the paper's text states no number there."
        if plan.paper_rows:
            rows_there = ", ".join(f"{role} is {label}" for role, label in plan.paper_rows.items())
            yield f"The paper's column has rows of its own size: {rows_there}."
    else:
        yield "The paper's text states no number of this table."
    found = Counter(entry.reference.source for entry in entries if entry.reference)
    foreign = ", ".join(f"{count} {SOURCES[source]}" for source, count in found.items() if source in SOURCES)
    if foreign:
        yield f"Numbers in the paper's column that were not read in the paper: {foreign} (sweeps/reference names each source)."
    wanted = {cell.id for cell in plan.wanted}
    mine = [row for row in rows if row["cell"] in wanted and row["scale"] == plan.scale]
    for metric in plan.beside:
        values = [row["value"] for row in mine if row.get("metric") == metric and row.get("value") is not None]
        if values:
            ends = dict.fromkeys(f"{end:.{plan.decimals}f}" for end in (min(values), max(values)))
            yield f"Beside it, on the same data: {metric.replace('_', ' ')} {' to '.join(ends)}."
    if any(row.get("dirty") for row in mine):
        yield "Some numbers come from a modified working tree (column dirty of results.parquet)."
    for name, what in MIXTURES.items():
        kinds = sorted({str(row[name]) for row in mine if name in row and "value" in row})
        if len(kinds) > 1:
            yield f"The numbers come from different {what}: {', '.join(kinds)}."
    here = (plan.name, plan.scale, " ".join(plan.overrides))
    others = {row["cell"] for row in rows if (row["sweep"], row["scale"], row["overrides"]) == here} - wanted
    if others:
        yield f"{len(others)} more collected cells of this sweep (an older sweep file, or not asked for here) are not shown."
