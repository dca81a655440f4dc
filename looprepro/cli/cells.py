"""One cell, named by the start of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from looprepro.config.cell import Cell
    from looprepro.store import CellRecord, Store


def matching_cell(store: Store, text: str, what: str = "cell") -> str:
    """The id of the one cell that starts with ``text``. :class:`ConfigError` where none or several do."""
    from looprepro.planning.keys import by_start

    return by_start(text, store.ids(), what)


def cell_of(record: CellRecord) -> Cell:
    """The configuration of a cell. :class:`StoreError` where its file cannot be read."""
    from looprepro.config.cell import Cell
    from looprepro.files.errors import StoreError

    if not record.config:
        raise StoreError(f"cell.json of {record.id} cannot be read", "Call its sweep again, which writes that file anew")
    return Cell.model_validate(record.config)


def check_trained(record: CellRecord) -> None:
    """:class:`StoreError` where a cell has not been trained to the end."""
    from looprepro.files.errors import StoreError

    if record.presence.status != "done":
        raise StoreError(f"{record.id} is {record.presence.status} and has no trained weights", "Run its sweep to the end")


def trained_weights(store: Store, record: CellRecord) -> Path:
    """The checkpoint folder of a trained cell. :class:`StoreError` where it was not trained or its weights are gone."""
    from looprepro.files.errors import StoreError
    from looprepro.store.results import weights_folder

    check_trained(record)
    weights = weights_folder(store.layout.cell(record.id), record.result)
    if weights is None:
        raise StoreError(f"the weights of {record.id} are gone", "Train it again: looprepro sweep ... --retrain")
    return weights
