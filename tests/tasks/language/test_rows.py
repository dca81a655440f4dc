"""Rows of text by index: once per epoch, the same from anywhere, real tokens counted, damage refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from looprepro.config.corpus import EOS, PAD
from looprepro.config.tasks import LanguageTask
from looprepro.files.errors import ConfigError, StoreError
from looprepro.tasks.language import make_language_task
from looprepro.tasks.task import UNSCORED

VOCABULARY = 300


def documents(lengths, first=3):
    """Documents whose tokens count on, so that every token says where it stood."""
    found, token = [], first
    for length in lengths:
        found.append(list(range(token, token + length)))
        token += length
    return found


def task(folder: Path, seed: int = 0, sequence: int = 7, **settings):
    config = LanguageTask(data=str(folder), vocabulary=VOCABULARY, sequence=sequence, **settings)
    return make_language_task(config, seed)


@pytest.fixture
def folder(corpus) -> Path:
    """41 documents in three shards, 246 tokens with their ends; 30 full rows of 8 and one of 6."""
    made = documents([5, 3, 9, 4, 4] * 8 + [5])
    return corpus([made[:10], made[10:25], made[25:]], [[5, 6, 7, 8], [9, 10, 11]])


def full_rows(task, first: int, count: int) -> torch.Tensor:
    """Inputs and last target of training rows, ``[rows, sequence + 1]``; -100 where nothing is scored."""
    batch = task.examples(torch.arange(first, first + count))
    return torch.cat([batch.tokens[:, :1], batch.targets], dim=1)


def test_an_epoch_reads_every_token_of_every_document_once(folder: Path) -> None:
    it = task(folder)
    assert it.rows_per_epoch == 31
    for epoch in (0, 1):
        seen = full_rows(it, epoch * 31, 31)
        tokens = seen[seen != UNSCORED]
        expected = [t for d in documents([5, 3, 9, 4, 4] * 8 + [5]) for t in (*d, EOS)]
        assert sorted(tokens.tolist()) == sorted(expected)


def test_epochs_and_seeds_have_orders_of_their_own_over_the_same_rows(folder: Path) -> None:
    first, again, second, other = (
        full_rows(task(folder), 0, 31),
        full_rows(task(folder), 0, 31),
        full_rows(task(folder), 31, 31),
        full_rows(task(folder, seed=1), 0, 31),
    )
    assert torch.equal(first, again)
    for changed in (second, other):
        assert not torch.equal(first, changed)
        assert {tuple(row) for row in first.tolist()} == {tuple(row) for row in changed.tolist()}


def test_a_row_depends_on_its_number_alone(folder: Path) -> None:
    whole = full_rows(task(folder), 0, 90)
    it = task(folder)
    for rows in ([89], [40, 3, 62], [30, 31]):
        batch = it.examples(torch.tensor(rows), step=5)
        assert torch.equal(torch.cat([batch.tokens[:, :1], batch.targets], dim=1), whole[rows])


def test_padding_is_neither_scored_nor_counted(folder: Path) -> None:
    it = task(folder)
    batch = it.examples(torch.arange(31))
    padded = (~batch.scored).any(dim=1)
    assert int(padded.sum()) == 1
    row = int(padded.nonzero())
    assert batch.scored[row].tolist() == [True] * 5 + [False] * 2
    assert batch.targets[row, 5:].tolist() == [UNSCORED] * 2
    assert batch.tokens[row, 6].item() == PAD
    assert it.real_tokens(torch.arange(31)).tolist() == batch.scored.sum(dim=1).tolist()
    assert it.packing.padding_share == pytest.approx(2 / 248)


def test_targets_are_the_next_tokens(folder: Path) -> None:
    batch = task(folder).examples(torch.arange(31))
    scored = batch.scored[:, :-1]
    assert torch.equal(batch.targets[:, :-1][scored], batch.tokens[:, 1:][scored])


def test_loss_sums_over_the_real_targets_of_each_row(folder: Path) -> None:
    it = task(folder)
    batch = it.examples(torch.arange(31))
    uniform = torch.zeros(31, 7, VOCABULARY, requires_grad=True)
    loss = it.loss(uniform, batch)
    assert loss.tolist() == pytest.approx([n * math.log(VOCABULARY) for n in it.real_tokens(torch.arange(31)).tolist()])
    loss.sum().backward()
    assert (uniform.grad[~batch.scored] == 0).all()
    sure = torch.nn.functional.one_hot(batch.targets.clamp(min=0), VOCABULARY) * 50.0
    assert it.metrics(sure, batch)["loss"].value.item() == pytest.approx(0.0, abs=1e-6)
    assert it.metrics(sure, batch)["loss"].items == 30 * 7 + 5


def test_the_document_mask_numbers_the_documents_of_a_row(folder: Path) -> None:
    assert task(folder).examples(torch.arange(3)).documents is None
    batch = task(folder, document_mask=True).examples(torch.arange(31))
    assert batch.documents is not None
    for tokens, numbers, scored in zip(batch.tokens.tolist(), batch.documents.tolist(), batch.scored.tolist(), strict=True):
        number = 0
        for token, got, real in zip(tokens, numbers, scored, strict=True):
            if real:
                assert got == number
            number += token == EOS


def test_held_out_rows_are_not_trained_on(folder: Path) -> None:
    it = task(folder)
    assert it.validation_rows == 2
    batch = it.evaluation_examples(torch.arange(2))
    assert batch.tokens[0].tolist() == [5, 6, 7, 8, EOS, 9, 10]  # 5 fit, then 3 of the other document's 4
    assert batch.targets[0].tolist() == [6, 7, 8, EOS, 9, 10, 11]
    assert batch.scored.sum(dim=1).tolist() == [7, 0]  # <|eos|> alone has no target


@pytest.mark.parametrize("name", ["train-00001.tokens", "train-00001.lengths", "tokenizer.json", "counts.bin"])
def test_a_damaged_file_is_refused_by_its_checksum(folder: Path, name: str) -> None:
    path = folder / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 4
    path.write_bytes(data)
    with pytest.raises(StoreError, match=f"{name} does not match its checksum"):
        task(folder)
    path.unlink()
    with pytest.raises(StoreError, match=f"{name} is missing"):
        task(folder)


def test_another_corpus_than_the_configuration_describes_is_refused(folder: Path) -> None:
    content = task(folder).content
    assert task(folder, content=content).content == content
    with pytest.raises(ConfigError, match="content"):
        task(folder, content="0" * 64)
    with pytest.raises(ConfigError, match="has 300 token ids"):
        make_language_task(LanguageTask(data=str(folder), vocabulary=400, sequence=7), 0)


def test_a_checkpoint_of_other_text_is_refused(folder: Path) -> None:
    it = task(folder)
    digest = it.digest()
    assert (digest.dtype, digest.shape) == (torch.uint8, (32,))
    it.require(digest)
    with pytest.raises(StoreError, match=r"trained on .* of content [0-9a-f]{12}, but .* now holds"):
        it.require(digest.flip(0))


def test_missing_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="looprepro data prepare offline-smoke"):
        task(tmp_path / "nothing")
