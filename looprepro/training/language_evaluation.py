"""Measure a trained language model at any budgets, without retraining: perplexities, bits per byte, last words.

Two perplexities, never to be compared: ``perplexity_packed`` over rows as training sees them, ``perplexity_document`` over
documents alone, cut to a row, first token not scored, <|eos|> not scored. x_0 is drawn by seed, draw and row from a stream
of its own (looprepro/randomness.py): measuring moves nothing and repeats exactly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Evaluation, LanguageEvaluation, narrow
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks.language.codec import Codec
from looprepro.tasks.language.questions import Question, encoded, lambada_file, lambada_texts, question, stand_in_questions
from looprepro.tasks.language.rows import LanguageRows, documents_of
from looprepro.training.dtypes import DTYPES
from looprepro.training.families import Documents
from looprepro.training.operator_geometry import operator_metrics
from looprepro.training.scoring import Readouts, Scored, State, Tokens, score

Metrics = dict[str, dict[str, Any]]
"""Name -> {"value", "items"}."""


class Measured:
    """A model on a device, ready to be asked at several budgets."""

    def __init__(self, model: LoopedTransformer, task: LanguageRows, cell: Cell, device: torch.device) -> None:
        self.model, self.task, self.cell, self.device = model.eval(), task, cell, device
        self.codec = Codec(task.corpus.folder / "tokenizer.json")

    def readouts(self, tokens: Tensor, state: Tensor, budgets: Sequence[int]) -> Any:
        """The model's, in the arithmetic of its training."""
        documents = documents_of(tokens) if self.task.config.document_mask else None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.cell.training.dtype == "bfloat16"):
            yield from self.model.readouts(tokens, state, budgets, documents)

    def state(self, draw: int) -> State:
        """x_0 of draw number ``draw``: a truncated normal of std sqrt(2/(5 width)); shorter rows get a longer one's start."""
        width = self.model.config.width

        def drawn(rows: Tensor, time: int) -> Tensor:
            values = randomness.truncated_normal(
                self.cell.seed, randomness.EVALUATION_STATE, draw, rows, time * width, device=self.device
            )
            return values.reshape(len(rows), time, width).to(DTYPES[self.cell.training.dtype]) * self.model.state_std()

        return drawn

    def score(self, sequences: Sequence[Tokens], targets: Sequence[int], budgets: Sequence[int], draw: int) -> Any:
        """See :func:`looprepro.training.scoring.score`."""
        readouts: Readouts = self.readouts
        return score(readouts, self.state(draw), sequences, targets, budgets, self.task.vocabulary, self.device)


def evaluate_language(
    model: LoopedTransformer, task: LanguageRows, cell: Cell, evaluations: Sequence[Evaluation], device: torch.device
) -> Documents:
    """Metrics of each evaluation, as the store keeps them. Evaluations that differ in T alone share one pass of the loop.

    :class:`~looprepro.files.errors.StoreError` where LAMBADA is asked for and not prepared.
    """
    measured = Measured(model, task, cell, device)
    alike: dict[LanguageEvaluation, list[LanguageEvaluation]] = defaultdict(list)
    for evaluation in evaluations:
        wanted = narrow(evaluation, LanguageEvaluation)
        alike[wanted.model_copy(update={"T": 1})].append(wanted)
    documents: Documents = {}
    for settings, group in alike.items():
        budgets = sorted({evaluation.T for evaluation in group})
        found = _metrics(measured, settings, budgets)
        for evaluation in group:
            documents[evaluation] = {
                "evaluation": evaluation.model_dump(mode="json"),
                "metrics": found[evaluation.T],
                "series": {},
                "data": task.content,
            }
    return documents


def _metrics(measured: Measured, settings: LanguageEvaluation, budgets: list[int]) -> dict[int, Metrics]:
    draws = [_one_draw(measured, settings, budgets, draw) for draw in range(settings.draws)]
    found = {budget: averaged([draw[budget] for draw in draws]) for budget in budgets}
    if "geometry" in settings.metrics:
        injection = measured.model.injection
        geometry = operator_metrics(injection.matrix(), injection.config.groups or 1, budgets)
        for budget in budgets:
            found[budget] |= geometry[budget]
    if "perplexity" in settings.metrics:
        reference = unigram_perplexity(measured.task, settings.items)
        for budget in budgets:
            found[budget] |= {"unigram_perplexity": reference}
    return found


def _one_draw(measured: Measured, settings: LanguageEvaluation, budgets: list[int], draw: int) -> dict[int, Metrics]:
    found: dict[int, Metrics] = {budget: {} for budget in budgets}
    parts = []
    if "perplexity" in settings.metrics:
        parts += [packed(measured, settings.items, budgets, draw), per_document(measured, settings.documents, budgets, draw)]
    if "last_word" in settings.metrics:
        asked = stand_in_questions(held_out_texts(measured), settings.questions)
        parts.append(last_words(measured, asked, "last_word", budgets, draw))
    if "lambada" in settings.metrics:
        parts.append(_lambada(measured, settings, budgets, draw))
    for part in parts:
        for budget in budgets:
            found[budget] |= part[budget]
    return found


def averaged(draws: Sequence[Metrics]) -> Metrics:
    """The mean of each metric over draws of x_0, and their standard deviation (ddof 1) where there are several."""
    found: Metrics = {}
    for name, first in draws[0].items():
        values = [draw[name]["value"] for draw in draws]
        found[name] = {"value": math.fsum(values) / len(values), "items": first["items"]}
        if len(values) > 1:
            found[f"{name}_sd"] = {"value": float(np.std(values, ddof=1)), "items": len(values)}
    return found


def packed(measured: Measured, rows: int, budgets: list[int], draw: int) -> dict[int, Metrics]:
    """``perplexity_packed``: exp of the mean nats over the real targets of the first ``rows`` validation rows."""
    task = measured.task
    batch = task.evaluation_examples(torch.arange(min(rows, task.validation_rows), dtype=torch.int64))
    whole = torch.cat([batch.tokens[:, :1], batch.targets], dim=1).numpy()
    filled = batch.scored.sum(dim=1).tolist()
    sequences = [row[: count + 1] for row, count in zip(whole, filled, strict=True) if count]
    targets = [count for count in filled if count]
    scored = measured.score(sequences, targets, budgets, draw)
    return {T: {"perplexity_packed": _perplexity(scored[T].nats, sum(targets))} for T in budgets}


def per_document(measured: Measured, documents: int, budgets: list[int], draw: int) -> dict[int, Metrics]:
    """``perplexity_document`` and ``bits_per_byte`` over the first ``documents`` validation documents, each alone."""
    split, longest = measured.task.corpus.validation, measured.task.max_time + 1
    sequences = [split.document(number)[:-1][:longest] for number in range(min(documents, split.documents))]
    sequences = [sequence for sequence in sequences if len(sequence) > 1]
    targets = [len(sequence) - 1 for sequence in sequences]
    scored = measured.score(sequences, targets, budgets, draw)
    size = sum(int(measured.codec.byte_lengths[sequence[1:]].sum()) for sequence in sequences)
    found = {}
    for T in budgets:
        bits = float(scored[T].nats.sum()) / math.log(2.0) / size
        found[T] = {
            "perplexity_document": _perplexity(scored[T].nats, sum(targets)),
            "bits_per_byte": {"value": bits, "items": size},
        }
    return found


def held_out_texts(measured: Measured) -> Any:
    """The validation documents as text, one after another."""
    split = measured.task.corpus.validation
    return (measured.codec.decode(split.document(number)[:-1].tolist()) for number in range(split.documents))


def last_words(measured: Measured, asked: Sequence[Question], name: str, budgets: list[int], draw: int) -> dict[int, Metrics]:
    """``<name>_accuracy``: all tokens of the word are the most likely ones; ``<name>_perplexity``: exp of the mean nats of a
    word (of all its tokens together, as lm-eval has it). Nothing where there are no questions."""
    if not asked:
        return {T: {} for T in budgets}
    return {T: _word_metrics(scored, name) for T, scored in score_questions(measured, asked, budgets, draw).items()}


def score_questions(measured: Measured, asked: Sequence[Question], budgets: list[int], draw: int) -> dict[int, Scored]:
    """Scores of the targets, question by question."""
    pairs = [encoded(item, measured.codec.encode, measured.task.max_time) for item in asked]
    found: dict[int, Scored] = measured.score([tokens for tokens, _ in pairs], [count for _, count in pairs], budgets, draw)
    return found


def _lambada(measured: Measured, settings: LanguageEvaluation, budgets: list[int], draw: int) -> dict[int, Metrics]:
    if settings.harness == "lm-eval":
        from looprepro.training.lm_eval_adapter import HUB, harness_scores

        data = HUB if settings.lambada == HUB else lambada_file(settings.lambada)
        scores = {T: harness_scores(measured, data, T, draw, settings.questions) for T in budgets}
        return {T: _word_metrics(scored, "lambada") for T, scored in scores.items()}
    asked = [question(text) for text in lambada_texts(lambada_file(settings.lambada))[: settings.questions]]
    return last_words(measured, asked, "lambada", budgets, draw)


def unigram_perplexity(task: LanguageRows, rows: int) -> dict[str, Any]:
    """The reference that every language model has to beat: the frequencies of the training split, one added to each count,
    on the targets of :func:`packed`."""
    counts = task.corpus.counts().astype(np.float64) + 1.0
    nats = -np.log(counts / counts.sum())
    batch = task.evaluation_examples(torch.arange(min(rows, task.validation_rows), dtype=torch.int64))
    targets = batch.targets[batch.scored].numpy()
    return _perplexity(nats[targets], len(targets))


def _word_metrics(scored: Scored, name: str) -> Metrics:
    count = len(scored.nats)
    return {
        f"{name}_accuracy": {"value": float(scored.greedy.mean()), "items": count},
        f"{name}_perplexity": _perplexity(scored.nats, count),
    }


def _perplexity(nats: np.ndarray, count: int) -> dict[str, Any]:
    """exp of the mean; capped at the largest float, which an untrained model can exceed."""
    return {"value": math.exp(min(float(nats.sum()) / count, 709.0)), "items": count}
