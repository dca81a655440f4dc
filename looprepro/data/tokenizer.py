"""The byte-level BPE tokenizer of the language models (Parcae's public code): trained here, read by ``tokenizers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from looprepro.config.corpus import SPECIAL_TOKENS
from looprepro.files.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPLIT_PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
"""GPT-4's, with digits in groups of one or two: no token crosses these boundaries."""
DOCUMENT_CHARACTERS = 10_000
"""Training reads this much of each document (Parcae)."""
CHARACTERS = 2_000_000_000
"""Training reads this much of the corpus (Parcae)."""
SMALLEST = 256 + len(SPECIAL_TOKENS)
"""Every byte is a token, whatever the corpus."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, characters: int = CHARACTERS) -> Tokenizer:
    """A tokenizer with exactly ``vocabulary`` entries from the first ``characters`` of ``texts``.

    No normaliser, minimum frequency 0, special tokens at ids 0, 1, 2. :class:`ConfigError` where the text is too small for
    so many merges.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocabulary < SMALLEST:
        raise ConfigError(f"a vocabulary of {vocabulary} is too small", f"{SMALLEST} hold every byte and the special tokens")
    tokenizer = Tokenizer(models.BPE(byte_fallback=False, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=0,
        show_progress=False,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_cut(texts, characters), trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ConfigError(
            f"the text gives only {tokenizer.get_vocab_size()} of {vocabulary} tokenizer entries",
            "Ask for a smaller --vocabulary, or give more text",
        )
    return tokenizer


def _cut(texts: Iterable[str], characters: int) -> Iterator[str]:
    left = characters
    for text in texts:
        if left <= 0:
            return
        piece = text[: min(DOCUMENT_CHARACTERS, left)]
        left -= len(piece)
        yield piece


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer file of ours, for encoding: "<|eos|>" in a text is then text, never the special token.

    :class:`ConfigError` where it is unreadable or its special tokens stand elsewhere.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise ConfigError(f"{path} is not a tokenizer: {error}", "Give the tokenizer.json of a prepared corpus") from error
    found = [tokenizer.id_to_token(i) for i in range(len(SPECIAL_TOKENS))]
    if found != list(SPECIAL_TOKENS):
        raise ConfigError(f"{path} has {found} at ids 0, 1, 2", f"A tokenizer of ours has {', '.join(SPECIAL_TOKENS)} there")
    tokenizer.encode_special_tokens = True
    return tokenizer
