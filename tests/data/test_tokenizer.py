"""The tokenizer: Parcae's layout, exact round trips, no way for a text to say <|eos|>."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.data.tokenizer import load_tokenizer, train_tokenizer
from looprepro.files.errors import ConfigError

TEXTS = ["It's 12345 tokens, isn't it?\n\n  We'll see 日本.", "The state turns, the state turns again."] * 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(train_tokenizer(TEXTS, 290).to_str())
    return load_tokenizer(path)


def test_special_tokens_come_first_and_every_byte_is_there(tokenizer) -> None:  # type: ignore[no-untyped-def]
    assert [tokenizer.id_to_token(i) for i in range(3)] == ["<|bos|>", "<|eos|>", "<|pad|>"]
    assert tokenizer.get_vocab_size() == 290
    assert sum(len(token) == 1 for token in tokenizer.get_vocab()) == 256


@given(text=st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_back_from_its_tokens(tokenizer, text: str) -> None:  # type: ignore[no-untyped-def]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert min(ids, default=3) >= 3


def test_a_text_cannot_say_a_special_token(tokenizer) -> None:  # type: ignore[no-untyped-def]
    ids = tokenizer.encode("end <|eos|> of <|pad|>", add_special_tokens=False).ids
    assert min(ids) >= 3


def test_the_split_keeps_digits_in_ones_and_twos_and_words_with_their_space(tokenizer) -> None:  # type: ignore[no-untyped-def]
    pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("It's 12345, we'll  see\n\nit")]
    assert pieces == ["It", "'s", "Ġ", "12", "34", "5", ",", "Ġwe", "'ll", "Ġ", "Ġsee", "ĊĊ", "it"]


def test_training_reads_only_what_it_is_told_to() -> None:
    """A document counts up to 10,000 characters, the corpus up to the number given: merges of what lies beyond don't exist."""
    seen = train_tokenizer(["ab" * 5000 + "xyxyxyxy" * 100, "mnmnmnmn"], 260, characters=10_000)
    assert "ab" in seen.get_vocab()
    with pytest.raises(ConfigError, match="gives only"):
        train_tokenizer(["ab" * 5000 + "xyxyxyxy" * 100, "mnmnmnmn"], 290, characters=10_000)


def test_what_is_no_tokenizer_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer"):
        load_tokenizer(tmp_path / "bad.json")
    with pytest.raises(ConfigError, match="259"):
        train_tokenizer(TEXTS, 100)
