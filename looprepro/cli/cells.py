"""One cell, named by the start of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from looprepro.store import Store


def matching_cell(store: Store, text: str, what: str = "cell") -> str:
    """The id of the one cell that starts with ``text``. :class:`ConfigError` where none or several do."""
    from looprepro.files.errors import ConfigError
    from looprepro.planning.keys import nearest

    ids = store.ids()
    matching = [id for id in ids if id.startswith(text)]
    if text in matching:
        return text
    if len(matching) != 1:
        few = f"{len(matching)} cells start with '{text}'" if matching else f"no {what} is called '{text}'"
        remedy = f"Did you mean '{nearest(text, ids)}'?" if ids else "Run a sweep first"
        raise ConfigError(few, remedy if not matching else "Write more of the id")
    return matching[0]
