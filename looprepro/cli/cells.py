"""One cell, named by the start of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from looprepro.store import Store


def matching_cell(store: Store, text: str, what: str = "cell") -> str:
    """The id of the one cell that starts with ``text``. :class:`ConfigError` where none or several do."""
    from looprepro.planning.keys import by_start

    return by_start(text, store.ids(), what)
