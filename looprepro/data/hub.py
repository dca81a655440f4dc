"""Text streamed from a data set on the Hugging Face hub, a broken transfer taken up where it broke."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from looprepro.data.source import clean
from looprepro.files.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from datasets import IterableDataset

TRIES = 5
"""Openings of the stream without a document between them before it is given up."""
OFFLINE = (
    "Without network: looprepro data prepare --text FILES for text of your own (also downloaded parquet files), "
    "or offline-smoke and offline-mini"
)


class HubText:
    """Source of :mod:`looprepro.data.prepare`: one column of one split, in the order of the data set's files."""

    def __init__(
        self,
        repository: str,
        subset: str | None,
        revision: str | None = None,
        *,
        split: str = "train",
        column: str = "text",
        offline: str = OFFLINE,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``subset``: the data set's configuration. ``revision``: a commit, a branch or a tag; None: the newest. ``offline``:
        what to do where the hub cannot be reached."""
        self.repository, self.subset, self.split, self.column = repository, subset, split, column
        self._revision, self._offline = revision, offline
        self._commit: str | None = None
        self._say = say
        self._state: dict[str, Any] | None = None
        self._stream: IterableDataset | None = None

    def describe(self) -> dict[str, Any]:
        """Data set and commit. :class:`StoreError` where the hub does not answer."""
        return {
            "name": self.repository,
            "subset": self.subset,
            "split": self.split,
            "column": self.column,
            "revision": self._resolved(),
        }

    def documents(self, cursor: Any = None) -> Iterator[str]:
        """See :class:`looprepro.data.source.Source`. :class:`StoreError` where the connection stays broken."""
        for example in self._unbroken(cursor):
            text = example[self.column]
            if isinstance(text, str) and text.strip():
                yield clean(text)

    def _unbroken(self, cursor: Any) -> Iterator[dict[str, Any]]:
        """The rows from ``cursor`` on; a broken transfer goes on where it broke."""
        self._state = cursor
        failures = 0
        while True:
            try:
                self._stream = self._open()
                if self._state is not None:
                    self._stream.load_state_dict(self._state)
                for example in self._stream:
                    failures = 0
                    yield example
                return
            except _network_errors() as error:
                failures += 1
                if failures >= TRIES:
                    raise StoreError(
                        f"the transfer of {self.repository} broke {TRIES} times: {brief(error)}", self._offline
                    ) from error
                self._state = self.cursor()  # only now: a state per row would cost more than the row
                self._say(f"transfer broken ({brief(error)}): going on in {failures} s")
                time.sleep(failures)

    def cursor(self) -> Any:
        """The stream's own state: file and row."""
        return self._state if self._stream is None else self._stream.state_dict()

    def _resolved(self) -> str:
        if self._commit is None:
            from huggingface_hub import HfApi
            from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

            try:
                self._commit = HfApi().dataset_info(self.repository, revision=self._revision).sha
            except (RepositoryNotFoundError, RevisionNotFoundError) as error:
                raise ConfigError(
                    f"the hub has no {self.repository} at {self._revision or 'its main branch'}", self._offline
                ) from error
            except _network_errors() as error:
                raise StoreError(f"the hub does not answer: {brief(error)}", self._offline) from error
            if self._commit is None:
                raise StoreError(f"the hub names no commit of {self.repository}", "Give --revision")
        return self._commit

    def _open(self) -> IterableDataset:
        from datasets import load_dataset

        try:
            found = load_dataset(self.repository, self.subset, split=self.split, streaming=True, revision=self._resolved())
        except (ValueError, FileNotFoundError) as error:  # an unknown subset, or one without files
            raise ConfigError(f"{self.repository}: {brief(error)}", "Choose one of its subsets with --subset") from error
        return found.select_columns([self.column])


def _network_errors() -> tuple[type[BaseException], ...]:
    """What a missing or breaking connection raises in the libraries used."""
    import httpx2  # the client of huggingface_hub; whose own errors, and no connection at all, are OSErrors

    return (OSError, httpx2.HTTPError, EOFError)


def brief(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:160]
