"""The text corpora of the catalogue: their vocabularies, shares and sources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from looprepro.config.corpus import CorpusManifest, read_manifest
from looprepro.data.catalog import Options, Say
from looprepro.data.local import LocalText
from looprepro.data.offline import OfflineText
from looprepro.data.prepare import Progress, Request, prepare
from looprepro.data.shards import PROGRESS
from looprepro.data.source import Source
from looprepro.files.json_files import read_json

FINEWEB_EDU = "HuggingFaceFW/fineweb-edu"
SMALL_SAMPLE, LARGE_SAMPLE = "sample-10BT", "sample-100BT"
SMALL_SAMPLE_TOKENS = 9_000_000_000
"""More training tokens than this come from the larger sample."""
VOCABULARY = 32_768
SMOKE_VOCABULARY, MINI_VOCABULARY = 1024, 2048
OFFLINE_VALIDATION = 0.05
"""Of the documents; a few hundred exist."""
VALIDATION = 0.002
"""Of the documents of a large corpus: ten million tokens of five billion."""
REPORT_SECONDS = 2.0
"""Between two lines of progress."""


def prepare_offline_smoke(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare offline-smoke``."""
    return _offline("offline-smoke", SMOKE_VOCABULARY, folder, options, say)


def prepare_offline_mini(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare offline-mini``."""
    return _offline("offline-mini", MINI_VOCABULARY, folder, options, say)


def _offline(name: str, vocabulary: int, folder: Path, options: Options, say: Say) -> str:
    options.only(name, "tokens", "vocabulary", "tokenizer", "validation")
    if options == Options() and (folder / "manifest.json").is_file():  # the text changes with every package: do not look again
        return summary(read_manifest(folder))
    return _text(OfflineText(packages=name == "offline-mini"), folder, options, say, vocabulary, OFFLINE_VALIDATION)


def prepare_fineweb_edu(folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare fineweb-edu``."""
    from looprepro.data.hub import HubText

    options.only("fineweb-edu", "tokens", "vocabulary", "tokenizer", "validation", "revision", "subset")
    large = options.tokens is None or options.tokens > SMALL_SAMPLE_TOKENS
    subset = options.subset or (LARGE_SAMPLE if large else SMALL_SAMPLE)
    source = HubText(FINEWEB_EDU, subset, options.revision or _begun(folder), say=say)
    return _text(source, folder, options, say, VOCABULARY, VALIDATION)


def prepare_files(paths: Sequence[Path], folder: Path, options: Options, say: Say) -> str:
    """``looprepro data prepare --text FILES``."""
    options.only("--text", "tokens", "vocabulary", "tokenizer", "validation")
    return _text(LocalText(paths), folder, options, say, VOCABULARY, OFFLINE_VALIDATION)


def _begun(folder: Path) -> str | None:
    """The commit that a preparation in ``folder`` was begun with: it goes on with that one, whatever came later."""
    path = folder / PROGRESS
    return str(read_json(path)["request"]["source"]["revision"]) if path.is_file() else None


def _text(source: Source, folder: Path, options: Options, say: Say, vocabulary: int, validation: float) -> str:
    request = Request(
        options.vocabulary or vocabulary,
        validation if options.validation is None else options.validation,
        options.tokens,
        options.tokenizer,
    )
    return summary(prepare(source, folder, request, _Reporter(say)))


def summary(manifest: CorpusManifest) -> str:
    """One line on a finished corpus."""
    return (
        f"{manifest.source.get('name', 'text')}: "
        f"{manifest.documents('train'):,} documents, {manifest.tokens('train'):,} tokens; "
        f"held out {manifest.documents('validation'):,} documents, {manifest.tokens('validation'):,} tokens; "
        f"vocabulary {manifest.vocabulary:,}; content {manifest.content[:12]}"
    )


class _Reporter:
    """Says where a preparation is, every few seconds."""

    def __init__(self, say: Say) -> None:
        self._say, self._last = say, -REPORT_SECONDS

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage != "finished" and now - self._last < REPORT_SECONDS:
            return
        self._last = now
        unit = "characters for the tokenizer" if progress.stage == "tokenizer" else "tokens"
        of = f" of {progress.wanted:,}" if progress.wanted else ""
        line = f"{progress.tokens:,}{of} {unit}, {progress.documents:,} documents"
        left = progress.remaining_seconds
        if progress.fresh_tokens and progress.stage != "finished":
            line += f", {progress.fresh_tokens / max(progress.seconds, 1e-9):,.0f} a second"
            line += f", at most {_duration(left)} left" if left is not None else ""
        self._say(line)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return (
        f"{whole} s"
        if whole < 60
        else f"{whole // 60} min"
        if whole < 3600
        else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )
