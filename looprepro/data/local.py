"""Text from files: plain text (a file is a document), JSON lines, parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from looprepro.data.source import clean
from looprepro.files.checksum import sha256_file
from looprepro.files.errors import ConfigError

ENDINGS = (".txt", ".md", ".text", ".jsonl", ".json", ".parquet")
"""What is read in a folder; a file named by itself may have any ending and is then plain text."""
COLUMN = "text"


class LocalText:
    """Source of :mod:`looprepro.data.prepare`: files in sorted order, folders searched below."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """:class:`ConfigError` where a path is missing or no file is left."""
        self._files: list[Path] = []
        for path in paths:
            if path.is_dir():
                self._files += sorted(file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file())
            elif path.is_file():
                self._files.append(path)
            else:
                raise ConfigError(f"{path} does not exist", "Check the path")
        if not self._files:
            raise ConfigError("no text files there", f"Files end in {', '.join(ENDINGS)}")
        self._place = [0, 0]

    def describe(self) -> dict[str, Any]:
        """Every file's name with its checksum: equal text gives an equal description, wherever it lies."""
        return {"name": "text", "files": [{"name": f.name, "sha256": sha256_file(f)} for f in self._files]}

    def documents(self, cursor: Any = None) -> Iterator[str]:
        """See :class:`looprepro.data.source.Source`."""
        first, skipped = cursor or (0, 0)
        for number in range(first, len(self._files)):
            self._place = [number, 0]
            for row, text in enumerate(_texts(self._files[number]), start=1):
                if number == first and row <= skipped:
                    continue
                self._place = [number, row]
                if text.strip():
                    yield clean(text)

    def cursor(self) -> list[int]:
        """[file, rows read of it]."""
        return list(self._place)


def _texts(path: Path) -> Iterator[str]:
    """The documents of one file, empty ones included. :class:`ConfigError` with the place of what is not text."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix in (".jsonl", ".json"):
            yield from _json_lines(path)
        else:
            yield path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as text: {error}", "Leave the file out") from error


def _json_lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[COLUMN]
                if not isinstance(text, str):
                    raise TypeError(f"'{COLUMN}' is not text")
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path}:{number}: no document: {error}", f'Every line is an object with the key "{COLUMN}"'
                ) from error
            yield text


def _parquet(path: Path) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256, columns=[COLUMN]):
                for text in batch.column(0).to_pylist():
                    yield text or ""
    except (pyarrow.ArrowException, IndexError) as error:
        raise ConfigError(f"{path} gives no column '{COLUMN}': {error}", "Check the file") from error
