"""The runs/ folder: layout, reservations, attempts, results, and status from files. The only room that knows paths there."""

from looprepro.store.attempt import Attempt, Superseded
from looprepro.store.records import CellRecord, Problem
from looprepro.store.store import Store

__all__ = ["Attempt", "CellRecord", "Problem", "Store", "Superseded"]
