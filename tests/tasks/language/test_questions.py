"""Last words: which passages are asked about, how they are cut into context and target, exact bytes of tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.data.tokenizer import train_tokenizer
from looprepro.files.errors import ConfigError, StoreError
from looprepro.tasks.language import questions
from looprepro.tasks.language.codec import Codec
from looprepro.tasks.language.questions import (
    Question,
    encoded,
    lambada_file,
    lambada_texts,
    passages,
    question,
    stand_in_questions,
)

TEXTS = ["The plane turned; naïve 日本 plane! It's 2026, and the turning plane stayed plain."] * 3


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Codec:
    path = tmp_path_factory.mktemp("codec") / "tokenizer.json"
    path.write_text(train_tokenizer(TEXTS, 290).to_str())
    return Codec(path)


def sentence(words: int, end: str) -> str:
    return " ".join(["filler"] * (words - 1) + [f"{end}."])


def test_a_passage_ends_in_a_word_that_occurred_before_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PASSAGE_WORDS", 6)
    asked = "The Plane flew over one small plane."
    assert list(passages(asked)) == ["The Plane flew over one small plane"]
    assert stand_in_questions([asked]) == [Question("The Plane flew over one small", " plane")]
    for refused in (
        "The bird flew over one small plane.",  # new
        "The cat saw one more small cat.",  # three letters
        "One in 2026 was before us in 2026.",  # no word
        "The plane flew. A plane.",  # too short in all
        "The plane flew over one small plane",  # no sentence ends
        "The plane-maker flew over one planes-maker.",
    ):
        assert list(passages(refused)) == []


def test_passages_are_whole_sentences_without_overlap() -> None:
    document = " ".join([sentence(30, "first"), sentence(15, "filler"), sentence(45, "filler"), sentence(10, "filler")])
    assert [len(passage.split()) for passage in passages(document)] == [45, 45]
    assert len(stand_in_questions([document, document])) == 4
    assert len(stand_in_questions([document, document], 3)) == 3
    assert list(passages(sentence(500, "filler") + " " + sentence(60, "filler"))) == [sentence(60, "filler")[:-1]]


def test_the_last_space_cuts_a_passage_as_lm_eval_cuts_it() -> None:
    for text in ("one two three", "two  spaces", "a trailing "):
        asked = question(text)
        assert asked.context == " ".join(text.split(" ")[:-1])
        assert asked.target == " " + text.split(" ")[-1]


def test_the_target_is_what_comes_after_the_context(codec: Codec) -> None:
    tokens, targets = encoded(Question("The plane turned; the", " turning"), codec.encode, 100)
    assert codec.decode(tokens[-targets:]) == " turning"
    assert codec.decode(tokens[:-targets]) == "The plane turned; the"
    tokens, targets = encoded(Question("The plane ", " turned"), codec.encode, 100)
    assert codec.decode(tokens[-targets:]) == "  turned"  # spaces at the end of a context belong to the target


def test_the_left_is_cut_where_a_row_is_too_short(codec: Codec) -> None:
    asked = Question("The plane turned; the plane stayed; the", " plane")
    whole, targets = encoded(asked, codec.encode, 100)
    cut, same = encoded(asked, codec.encode, 6)
    assert (cut, same) == (whole[-7:], targets)  # six are read, the seventh is only predicted


@given(text=st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_bytes_of_tokens_are_exact(codec: Codec, text: str) -> None:
    """Also where a character is spread over tokens: each counts its own bytes, not those of a replacement sign."""
    ids = codec.encode(text)
    assert int(codec.byte_lengths[ids].sum()) == len(text.encode("utf-8"))
    assert codec.byte_lengths[:3].tolist() == [0, 0, 0]


def test_lambada_files_are_found_or_their_absence_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    with pytest.raises(StoreError, match="looprepro data prepare lambada"):
        lambada_file("lambada")
    path = tmp_path / "lambada" / "test.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps({"text": "one two"}) + "\n\n" + json.dumps({"text": "three four five"}) + "\n")
    assert lambada_texts(lambada_file("lambada")) == ["one two", "three four five"]
    assert lambada_file(str(path)) == path
    path.write_text(json.dumps({"text": "one two"}) + "\n" + json.dumps({"text": "one"}) + "\n")
    with pytest.raises(ConfigError, match=r"test\.jsonl:2: no passage"):
        lambada_texts(path)
