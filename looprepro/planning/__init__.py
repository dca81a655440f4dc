"""Which cells a sweep needs and which of them are missing. Pure: what is present is passed in; nothing is written or run.

sweep = load_sweep("table1")
expansion = expand(sweep, "smoke", overrides=["training.steps=50"])
plan(merge([expansion]), present)
"""

from looprepro.planning.catalog import available_sweeps, load_sweep, sweeps_folder
from looprepro.planning.expansion import Expansion, Placement, PlannedCell, PlannedEvaluation, expand, merge
from looprepro.planning.plan import Item, Plan, budgets, plan
from looprepro.planning.references import StatedNumber, stated_numbers, stated_of
from looprepro.planning.schema import Sweep

__all__ = [
    "Expansion",
    "Item",
    "Placement",
    "Plan",
    "PlannedCell",
    "PlannedEvaluation",
    "StatedNumber",
    "Sweep",
    "available_sweeps",
    "budgets",
    "expand",
    "load_sweep",
    "merge",
    "plan",
    "stated_numbers",
    "stated_of",
    "sweeps_folder",
]
