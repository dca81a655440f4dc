"""Measuring a language model: every number against a plain computation, and LAMBADA against lm-eval item by item."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from looprepro.config.cell import Cell, LanguageEvaluation
from looprepro.data.local import LocalText
from looprepro.data.prepare import Request, prepare
from looprepro.files.errors import StoreError
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks.language import make_language_task
from looprepro.tasks.language.questions import lambada_texts, question
from looprepro.training import scoring
from looprepro.training.language_evaluation import Measured, evaluate_language, packed, score_questions
from looprepro.training.scoring import blocks, score

VOCABULARY, SEQUENCE = 320, 48
CPU = torch.device("cpu")
ORDER = "the loop turns a state in its plane and every angle stays while norms of groups fall naïve"
WORDS = ORDER.split()


def text(seed: int, sentences: int) -> str:
    """Words that mostly follow one another in one order, so that a few steps of training teach some last words."""
    draw = random.Random(seed)
    place, found = draw.randrange(len(WORDS)), []
    for _ in range(sentences):
        words = []
        for _ in range(draw.randrange(4, 9)):
            place = (place + 1) % len(WORDS) if draw.random() < 0.9 else draw.randrange(len(WORDS))
            words.append(WORDS[place])
        found.append(" ".join(words) + ".")
    return " ".join(found)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A float64 model after a few steps of Adam on a small corpus: it knows some words."""
    folder = tmp_path_factory.mktemp("language")
    (folder / "text").mkdir()
    for number in range(40):
        (folder / "text" / f"{number:02d}.txt").write_text(text(number, 3 + number % 20))
    prepare(LocalText([folder / "text"]), folder / "corpus", Request(VOCABULARY, 0.2), lambda progress: None)
    cell = Cell.model_validate(
        {
            "task": {"kind": "language", "data": str(folder / "corpus"), "vocabulary": VOCABULARY, "sequence": SEQUENCE},
            "model": {
                "width": 16,
                "heads": 2,
                "prelude_layers": 1,
                "core_layers": 1,
                "coda_layers": 1,
                "injection": {"method": "conformal", "groups": 2},
            },
            "training": {"kind": "tokens", "tokens": 10_000, "batch_tokens": 384, "dtype": "float64"},
            "seed": 3,
        }
    )
    task = make_language_task(cell.task, cell.seed)  # type: ignore[arg-type]
    model = LoopedTransformer(cell.model, VOCABULARY, SEQUENCE)  # type: ignore[arg-type]
    model.initialise(cell.seed)
    model.double()
    found = Measured(model, task, cell, CPU)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for step in range(80):
        rows = torch.arange(8) + 8 * step
        batch = task.examples(rows)
        logits = model(batch.tokens, 3, found.state(0)(rows, SEQUENCE))
        optimizer.zero_grad()
        (task.loss(logits, batch).sum() / task.real_tokens(rows).sum()).backward()
        optimizer.step()
    model.requires_grad_(False)
    return found


def alone(measured: Measured, sequence: list[int], number: int, T: int, draw: int = 0) -> torch.Tensor:
    """Log-probabilities after ``T`` steps of one sequence by itself, by the model's forward pass: ``[time, vocabulary]``."""
    inputs = torch.tensor([sequence[:-1]])
    state = measured.state(draw)(torch.tensor([number]), inputs.shape[1])
    return measured.model(inputs, T, state)[0].log_softmax(dim=-1)


def metrics(measured: Measured, **settings: object) -> dict[str, dict[str, float]]:
    evaluation = LanguageEvaluation.model_validate({"T": 3, "items": 6} | settings)
    found = evaluate_language(measured.model, measured.task, measured.cell, [evaluation], CPU)
    (document,) = found.values()
    assert document["evaluation"] == evaluation.model_dump(mode="json")
    assert document["data"] == measured.task.content
    return document["metrics"]


def test_sequences_in_blocks_score_as_they_do_alone(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "ROWS", 3)
    draw = random.Random(0)
    sequences = [[draw.randrange(3, VOCABULARY) for _ in range(n)] for n in (9, 2, 30, 17, 5, 5, 41)]
    targets = [2, 1, 29, 5, 4, 1, 3]
    found = measured.score(sequences, targets, [1, 4], 0)
    for T in (1, 4):
        for number, (sequence, count) in enumerate(zip(sequences, targets, strict=True)):
            logs = alone(measured, sequence, number, T)[-count:]
            wanted = torch.tensor(sequence[-count:])
            assert found[T].nats[number] == pytest.approx(-float(logs.gather(1, wanted[:, None]).sum()), rel=1e-9)
            assert found[T].greedy[number] == bool((logs.argmax(dim=-1) == wanted).all())


def test_blocks_hold_similar_lengths_and_few_logits() -> None:
    lengths = [5, 100, 7, 100, 6]
    assert list(blocks(lengths, 10)) == [[0, 4, 2, 1, 3]]
    wide = scoring.LOGITS // 200
    assert list(blocks(lengths, wide)) == [[0, 4, 2], [1, 3]]
    assert list(blocks([3], scoring.LOGITS)) == [[0]]  # one sequence is scored whatever it takes


def test_a_sequence_without_context_is_refused(measured: Measured) -> None:
    with pytest.raises(ValueError, match="a target needs a token before it"):
        score(measured.readouts, measured.state(0), [[4]], [1], [1], VOCABULARY, CPU)


def test_packed_perplexity_is_that_of_whole_rows(measured: Measured) -> None:
    found = metrics(measured, metrics=["perplexity"])["perplexity_packed"]
    batch = measured.task.evaluation_examples(torch.arange(6))
    logits = measured.model(batch.tokens, 3, measured.state(0)(torch.arange(6), SEQUENCE))
    nats = measured.task.loss(logits, batch).sum() / batch.scored.sum()
    assert found["value"] == pytest.approx(math.exp(float(nats)), rel=1e-9)
    assert found["items"] == int(batch.scored.sum())


def test_a_document_mask_of_training_holds_at_evaluation(measured: Measured) -> None:
    config = measured.task.config.model_copy(update={"document_mask": True})
    inside = Measured(measured.model, type(measured.task)(config, 3, measured.task.corpus), measured.cell, CPU)
    batch = inside.task.evaluation_examples(torch.arange(6))
    logits = measured.model(batch.tokens, 2, measured.state(0)(torch.arange(6), SEQUENCE), batch.documents)
    expected = math.exp(float(inside.task.loss(logits, batch).sum() / batch.scored.sum()))
    found = packed(inside, 6, [2], 0)[2]["perplexity_packed"]["value"]
    assert found == pytest.approx(expected, rel=1e-9)
    assert found != pytest.approx(packed(measured, 6, [2], 0)[2]["perplexity_packed"]["value"], rel=1e-6)


def test_document_perplexity_and_bits_per_byte_by_hand(measured: Measured) -> None:
    found = metrics(measured, metrics=["perplexity"], documents=4)
    split = measured.task.corpus.validation
    nats, count, size = 0.0, 0, 0
    for number in range(4):
        ids = split.document(number)[:-1][: SEQUENCE + 1].tolist()
        logs = alone(measured, ids, number, 3)
        nats -= float(logs.gather(1, torch.tensor(ids[1:])[:, None]).sum())
        count += len(ids) - 1
        size += len(measured.codec.decode(ids).encode()) - len(measured.codec.decode(ids[:1]).encode())
    assert found["perplexity_document"] == {"value": pytest.approx(math.exp(nats / count)), "items": count}
    assert found["bits_per_byte"] == {"value": pytest.approx(nats / math.log(2) / size), "items": size}


def test_the_unigram_reference_by_hand_is_worse_than_the_model(measured: Measured) -> None:
    found = metrics(measured, metrics=["perplexity"])
    train = np.concatenate([measured.task.corpus.train.document(n) for n in range(measured.task.corpus.train.documents)])
    batch = measured.task.evaluation_examples(torch.arange(6))
    targets = batch.targets[batch.scored].tolist()
    probabilities = [(np.count_nonzero(train == t) + 1) / (len(train) + VOCABULARY) for t in targets]
    assert found["unigram_perplexity"]["value"] == pytest.approx(math.exp(-np.mean(np.log(probabilities))))
    assert found["perplexity_packed"]["value"] < 0.7 * found["unigram_perplexity"]["value"]


def test_numbers_repeat_and_do_not_depend_on_other_budgets(measured: Measured) -> None:
    evaluations = [LanguageEvaluation(T=T, items=6) for T in (1, 3, 8)]
    together = evaluate_language(measured.model, measured.task, measured.cell, evaluations, CPU)
    alone = metrics(measured, metrics=["last_word", "perplexity"])
    assert {name: together[evaluations[1]]["metrics"][name] for name in alone} == alone
    first, last = (together[e]["metrics"]["perplexity_packed"]["value"] for e in (evaluations[0], evaluations[2]))
    assert first != last
    assert {"defect_sphere", "defect_blockwise"} <= together[evaluations[0]]["metrics"].keys()


def test_draws_of_the_state_are_averaged_with_their_spread(measured: Measured) -> None:
    settings = {"metrics": ["perplexity"], "T": 1}
    one = metrics(measured, **settings)
    several = metrics(measured, **settings, draws=3)
    assert not any(name.endswith("_sd") for name in one)
    values = [measured_draw(measured, draw) for draw in range(3)]
    assert len(set(values)) == 3
    assert one["perplexity_packed"]["value"] == values[0]
    assert several["perplexity_packed"]["value"] == pytest.approx(sum(values) / 3)
    assert several["perplexity_packed_sd"] == {"value": pytest.approx(np.std(values, ddof=1)), "items": 3}


def measured_draw(measured: Measured, draw: int) -> float:
    return packed(measured, 6, [1], draw)[1]["perplexity_packed"]["value"]


@pytest.fixture
def lambada(tmp_path: Path) -> Path:
    """Passages of one word to sixty, some longer than a row, some whose last word the model knows."""
    lines = [{"text": text(500 + number, 1 + number % 9).rstrip(".")} for number in range(30)]
    path = tmp_path / "lambada.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_our_scorer_agrees_with_lm_eval_item_by_item(measured: Measured, lambada: Path) -> None:
    from looprepro.training.lm_eval_adapter import harness_scores

    asked = [question(one) for one in lambada_texts(lambada)]
    assert any(len(measured.codec.encode(item.context)) > SEQUENCE for item in asked)
    for T in (1, 4):
        ours = score_questions(measured, asked, [T], 0)[T]
        theirs = harness_scores(measured, lambada, T)
        assert ours.nats == pytest.approx(theirs.nats, rel=1e-9)
        assert ours.greedy.tolist() == theirs.greedy.tolist()
        assert 0 < ours.greedy.sum() < len(asked), "an agreement on nothing but wrong answers says little"


def test_both_harnesses_give_the_same_numbers_under_the_same_names(measured: Measured, lambada: Path) -> None:
    ours = metrics(measured, metrics=["lambada"], lambada=str(lambada), questions=12)
    theirs = metrics(measured, metrics=["lambada"], lambada=str(lambada), questions=12, harness="lm-eval")
    assert ours.keys() == theirs.keys() == {"lambada_accuracy", "lambada_perplexity"}
    assert ours["lambada_accuracy"] == theirs["lambada_accuracy"]
    assert ours["lambada_perplexity"]["value"] == pytest.approx(theirs["lambada_perplexity"]["value"])
    assert ours["lambada_accuracy"]["items"] == 12


def test_the_task_file_of_lm_eval_is_the_one_expected() -> None:
    from looprepro.training.lm_eval_adapter import task_settings

    settings = task_settings()
    assert settings["dataset_path"] == "EleutherAI/lambada_openai"
    assert settings["output_type"] == "loglikelihood"


def test_without_lambada_data_there_is_only_the_stand_in_and_it_has_another_name(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    with pytest.raises(StoreError, match="looprepro data prepare lambada"):
        metrics(measured, metrics=["lambada"])
    found = metrics(measured, metrics=["last_word"])
    assert found.keys() == {"last_word_accuracy", "last_word_perplexity"}
    assert found["last_word_accuracy"]["items"] >= 3
    assert metrics(measured, metrics=["last_word"], questions=2)["last_word_accuracy"]["items"] == 2
