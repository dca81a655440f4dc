"""Rows of text columns from a data set of CSV files on the hub, a broken transfer taken up where it broke."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from looprepro.data.hub import HubText, brief
from looprepro.files.errors import ConfigError

if TYPE_CHECKING:
    from datasets import IterableDataset


class HubRows(HubText):
    """One split of a data set whose CSV files have exactly ``header``; every column is text.

    Without types an answer of 81 digits would be read as a floating-point number and lose most of them.
    """

    def __init__(
        self,
        repository: str,
        revision: str | None,
        split: str,
        header: Sequence[str],
        *,
        offline: str,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(repository, None, revision, split=split, offline=offline, say=say)
        self._header = tuple(header)

    @property
    def commit(self) -> str:
        """The commit that is read. :class:`StoreError` where the hub does not answer."""
        return self._resolved()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All rows in order. :class:`StoreError` where the connection stays broken."""
        for row in self._unbroken(None):
            yield dict(row)

    def _open(self) -> IterableDataset:
        from datasets import Features, Value, load_dataset

        features = Features({name: Value("string") for name in self._header})
        try:
            return load_dataset(self.repository, split=self.split, streaming=True, revision=self._resolved(), features=features)
        except (ValueError, FileNotFoundError) as error:
            raise ConfigError(f"{self.repository}: {brief(error)}", "Give another --revision") from error
