"""Last words: a passage without its last word, and the word. LAMBADA's items, or the stand-in made from held-out text.

The stand-in is for the places where LAMBADA's data is not: passages of a corpus's own validation documents, cut before a
last word of four letters or more that occurs earlier in the passage. It is easier than LAMBADA and is never called that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.places import data_folder

PASSAGE_WORDS = 40
"""Words of a stand-in passage, at least; it ends with the sentence that reaches them. LAMBADA's have 75 on average."""
LONGEST_PASSAGE = 200
"""Words beyond which a passage is given up: text without sentences."""
SHORTEST_WORD = 4
"""Letters of a last word, at least."""


@dataclass(frozen=True)
class Question:
    """One item."""

    context: str
    target: str
    """The last word, with the space before it."""


def question(text: str) -> Question:
    """A passage cut at its last space, as lm-eval's ``lambada_openai`` cuts it."""
    context, _, last = text.rpartition(" ")
    return Question(context, f" {last}")


def lambada_file(name: str) -> Path:
    """The .jsonl file of prepared LAMBADA data. :class:`StoreError` where there is none."""
    path = Path(name) if name.endswith(".jsonl") else data_folder(name) / "test.jsonl"
    if not path.is_file():
        raise StoreError(
            f"{path} does not exist: LAMBADA is not prepared",
            'Run looprepro data prepare lambada (network), name a .jsonl file of {"text": ...} with evaluation.lambada, '
            "or measure the stand-in: last_word",
        )
    return path


def lambada_texts(path: Path) -> list[str]:
    """The passages of a .jsonl file. :class:`ConfigError` naming the line that holds none."""
    texts = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)["text"]
                if not isinstance(text, str) or " " not in text.strip():
                    raise ValueError("no text of two words or more")
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path}:{number}: no passage: {error}", 'Every line is {"text": "a passage"}') from error
            texts.append(text)
    return texts


def stand_in_questions(documents: Iterable[str], count: int | None = None) -> list[Question]:
    """The first ``count`` stand-in questions of ``documents``, several from a long one, passages without overlap."""
    return list(islice((question(passage) for document in documents for passage in passages(document)), count))


_SENTENCE_END = re.compile(r"[.!?][\"')\]]*$")
_WORD = re.compile(r"[A-Za-z]+")


def passages(document: str) -> Iterator[str]:
    """Runs of whole sentences of :data:`PASSAGE_WORDS` words or more whose last word (:data:`SHORTEST_WORD` letters or more,
    nothing but letters) occurs earlier in the run as a word, whatever its case; ended before the full stop."""
    run: list[str] = []
    given_up = False
    for word in document.split():
        run.append(word)
        given_up = given_up or len(run) > LONGEST_PASSAGE
        if (len(run) < PASSAGE_WORDS and not given_up) or not _SENTENCE_END.search(word):
            continue
        last = word.rstrip(".!?\"')]")
        earlier = {found.lower() for one in run[:-1] for found in _WORD.findall(one)}
        if not given_up and len(last) >= SHORTEST_WORD and _WORD.fullmatch(last) and last.lower() in earlier:
            yield " ".join([*run[:-1], last])
        run, given_up = [], False


def encoded(question: Question, encode: Callable[[str], list[int]], sequence: int) -> tuple[list[int], int]:
    """(Tokens, how many of the last ones are the target's), as lm-eval splits and cuts them.

    The whole text is encoded at once and the target is what comes after as many tokens as the context alone has; spaces that
    end the context belong to the target. The left is cut where context and target exceed ``sequence`` + 1 tokens: the last
    token is only a target. No special token stands first.
    """
    context = question.context.rstrip()
    target = question.context[len(context) :] + question.target
    whole = encode(context + target)
    cut = len(encode(context))
    tokens = encode(context) + whole[cut:]
    return tokens[-(sequence + 1) :], len(whole) - cut
