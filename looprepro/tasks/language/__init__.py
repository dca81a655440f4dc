"""Language: rows of a prepared corpus, and what is asked about held-out text."""

from __future__ import annotations

from looprepro.config.tasks import LanguageTask
from looprepro.files.places import data_folder
from looprepro.tasks.language.reader import Corpus
from looprepro.tasks.language.rows import LanguageRows

__all__ = ["Corpus", "LanguageRows", "make_language_task"]


def make_language_task(config: LanguageTask, seed: int, verified: str | None = None) -> LanguageRows:
    """The task that ``config`` describes, reading its corpus and verifying it, unless it is of the content ``verified``."""
    return LanguageRows(config, seed, Corpus(data_folder(config.data), verified))
