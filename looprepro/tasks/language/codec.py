"""Text to tokens and back, and how many bytes of text each token stands for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from looprepro.config.corpus import SPECIAL_TOKENS


class Codec:
    """A corpus's tokenizer."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.encode_special_tokens = True  # "<|eos|>" in a text is text

    def encode(self, text: str) -> list[int]:
        """Token ids; no special tokens are added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        """The text of ``ids``; bytes that are not valid UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Int64 ``[vocabulary]``: bytes of text that each token stands for; 0 for the special ones.

        A byte-level tokenizer writes each byte of a token as one letter, so this is exact also where a token is a part of a
        character (decoding such a token alone would give U+FFFD, three bytes, whatever it is).
        """
        size = self._tokenizer.get_vocab_size()
        lengths = [len(self._tokenizer.id_to_token(i) or "") for i in range(size)]
        return np.array([0] * len(SPECIAL_TOKENS) + lengths[len(SPECIAL_TOKENS) :], dtype=np.int64)
