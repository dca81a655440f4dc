"""The sample that a claim's selector names: one number per distinct finished seed, of the cells that the sweep wants today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from looprepro.analysis.results import Points, Results
from looprepro.analysis.rows import series_name
from looprepro.analysis.samples import distinct
from looprepro.analysis.schema import Row
from looprepro.analysis.statistics import mean
from looprepro.files.errors import ConfigError
from looprepro.planning import Expansion, Placement, PlannedCell, available_sweeps, expand, load_sweep, merge
from looprepro.planning.claims import RESERVED, SPANS, Selector
from looprepro.planning.keys import nearest


@dataclass(frozen=True)
class Selected:
    """A sample, or why there is none."""

    values: Mapping[int, float]
    """Seed -> value."""
    lacking: str = ""
    """Why the sample is empty."""
    planned: int = 0
    """Seeds that the sweep plans at the scale."""
    diverged: int = 0
    """Seeds that diverged and so have no value."""
    repeated: int = 0
    """Seeds whose run is another seed's, bit for bit, and so counts once."""
    failed: int = 0
    """Seeds that failed: they may still be run again."""

    @property
    def withheld(self) -> str:
        """Why no test on this sample may decide yet; empty where all planned seeds have run and half of them have a value."""
        missing = self.planned - len(self.values) - self.diverged - self.repeated
        if missing > 0:
            failed = f", {self.failed} failed," if self.failed else ""
            return f"{self.planned - missing} of {self.planned} seeds so far{failed} and no verdict before all"
        if 2 * self.diverged > self.planned:
            return f"{self.diverged} of {self.planned} seeds diverged, and no verdict on the others alone"
        return ""


@dataclass
class Samples:
    """Looks samples up in collected results. A seed without a value is not a value of 0: it is counted or missing.

    As in tables, a cell's numbers serve every sweep that plans the cell, whichever of them had it run.
    """

    results: Results
    _expansions: dict[str, Expansion | str] = field(default_factory=dict)
    _points: dict[str, Mapping[str, Points]] = field(default_factory=dict)

    @cached_property
    def _by_cell(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.results.rows:
            found.setdefault(row["cell"], []).append(row)
        return found

    def expansion(self, sweep: str) -> Expansion | str:
        """The sweep at this scale, or why there is none."""
        if sweep not in self._expansions:
            scale = self.results.scale
            if sweep not in available_sweeps():
                self._expansions[sweep] = f"the sweep {sweep} does not exist yet"
            elif scale not in (loaded := load_sweep(sweep)).scales:
                self._expansions[sweep] = f"{sweep} has no scale {scale}"
            else:
                self._expansions[sweep] = expand(loaded, scale)
        return self._expansions[sweep]

    def places(self, sweep: str, axes: Mapping[str, str]) -> list[tuple[PlannedCell, Placement]]:
        """Where in the sweep at this scale the roles are ``axes``, whatever the others are; nowhere if there is no sweep."""
        expansion = self.expansion(sweep)
        cells = expansion.cells if isinstance(expansion, Expansion) else ()
        return [(cell, place) for cell in cells for place in cell.placements if axes.items() <= place.axes.items()]

    def roles(self, sweep: str, axis: str, among: Mapping[str, str] | None = None) -> list[str]:
        """Roles of ``axis`` ("T": budgets) in the sweep at this scale, in the plan of the cells that have the roles ``among``:
        from the plan, never from what happens to be there."""
        places = [place for _, place in self.places(sweep, among or {})]
        if axis == "T":
            return list(dict.fromkeys(e.role for place in places for e in place.evaluations))
        return list(dict.fromkeys(place.axes[axis] for place in places if axis in place.axes))

    def select(self, selector: Selector) -> Selected:
        """The sample that ``selector`` names."""
        sweep = selector["sweep"]
        expansion = self.expansion(sweep)
        if isinstance(expansion, str):
            return Selected({}, lacking=expansion)
        axes = {key: role for key, role in selector.items() if key not in RESERVED}
        for axis in axes:
            if axis not in expansion.sweep.axes:
                close = nearest(axis, (*expansion.sweep.axes, *RESERVED))
                raise ConfigError(
                    f"a claim on {sweep} names the axis '{axis}', which it does not have", f"Did you mean '{close}'?"
                )
        for axis, role in (axes | ({"T": selector["T"]} if "T" in selector else {})).items():
            if role not in self.roles(sweep, axis):
                return Selected({}, lacking=f"{sweep} has no {axis} = {role} at scale {self.results.scale}")
        places = self.places(sweep, axes)
        wanted = {(cell.id, e.id) for cell, place in places for e in place.evaluations if selector.get("T", e.role) == e.role}
        there = [
            row
            for cell in sorted({cell.id for cell, _ in places})
            for row in sorted(self._by_cell.get(cell, ()), key=lambda row: row["sweep"] != sweep)  # its own first
            if selector.get("device", "").casefold() in row.get("device", "").casefold()
        ]
        measured = self._measured([row for row in there if (row["cell"], row.get("evaluation")) in wanted], selector)
        counted = distinct(measured)
        lacking = ""
        if not counted:
            shown = " ".join(f"{key}={selector[key]}" for key in selector if key != "sweep")
            lacking = f"no finished run of {sweep} has {shown}"
            old = [r for r in there if r["sweep"] == sweep and r.get("role_T") == selector.get("T", r.get("role_T"))]
            if self._measured(old, selector):
                lacking = f"{sweep} was measured by an older version: looprepro sweep {sweep} measures its cells again"
        seeds = {status: {row["seed"] for row in there if row["status"] == status} for status in ("diverged", "failed")}
        return Selected(
            {row["seed"]: row["sample"] for row in counted},
            lacking,
            planned=len({cell.cell.seed for cell, _ in places}),
            diverged=len(seeds["diverged"]),
            repeated=len({row["seed"] for row in measured}) - len(counted),
            failed=len(seeds["failed"]),
        )

    def _measured(self, rows: list[Row], selector: Selector) -> list[Row]:
        """Rows with a number of the wanted kind under ``sample``."""
        done = [row for row in rows if row["status"] == "done"]
        if "column" in selector:
            return [row | {"sample": row[selector["column"]]} for row in done if row.get(selector["column"]) is not None]
        if "series" not in selector:
            for metric in selector.get("metric", "last_token_accuracy").split("|"):
                measured = [
                    row | {"sample": row["value"]}
                    for row in done
                    if row.get("metric") == metric and row.get("value") is not None
                ]
                if measured:
                    return measured
            return []
        low, high = SPANS[selector["span"]]
        found = []
        for row in done:
            name = series_name(row, selector["series"])
            if name not in self._points:
                self._points[name] = self.results.series(name)
            y = self._points[name].get(row["cell"], ([], []))[1]
            part = y[round(low * len(y)) : round(high * len(y))]
            if part:
                found.append(row | {"sample": mean(part)})
        return found

    def device_hours(self, sweeps: tuple[str, ...], device: str) -> tuple[float, int, int]:
        """(Hours of the finished cells of ``sweeps`` on ``device``, how many those are, how many are wanted), each once."""
        expansions = [found for sweep in sweeps if not isinstance(found := self.expansion(sweep), str)]
        wanted = {planned.id for planned in merge(expansions)}
        hours = {
            row["cell"]: row["device_hours"]
            for cell in wanted
            for row in self._by_cell.get(cell, ())
            if row["status"] == "done" and "device_hours" in row and device.casefold() in row.get("device", "").casefold()
        }
        return sum(hours[cell] for cell in sorted(hours)), len(hours), len(wanted)
