"""ARC: data offline, flattening, images, identifiers, voting (a planted task) and the public scoring rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.config.puzzles import ArcTask
from looprepro.files.errors import ConfigError, StoreError
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.arc import Arc
from looprepro.tasks.puzzles.arc_grids import Image, flatten, unflatten
from looprepro.tasks.puzzles.arc_tasks import ArcPuzzle, load_arc, read_submission, score_submission
from looprepro.tasks.task import UNSCORED


def grid(*rows: str) -> np.ndarray:
    """Digits to an array."""
    return np.array([[int(cell) for cell in row] for row in rows], dtype=np.int64)


def puzzle(id: str, *pairs: tuple[np.ndarray, np.ndarray], tests: int = 1) -> ArcPuzzle:
    return ArcPuzzle(id, pairs[:-tests], pairs[-tests:])


# A rule without any symmetry: what is asked looks different in each of its images.
PLANTED = puzzle("planted", (grid("120", "000"), grid("210", "003")), (grid("450", "006"), grid("540", "607")))
OTHER = puzzle("other", (grid("11", "22"), grid("33")), (grid("34"), grid("12", "56")), (grid("35"), grid("78")), tests=2)
SMALL = ArcTask(side=6, tasks=1, augmentations=6)


@pytest.fixture
def planted() -> Arc:
    return Arc(SMALL, 0, ([OTHER], [PLANTED]))


def test_the_data_are_there_without_a_network() -> None:
    """Counts of the published sets: training and evaluation tasks, their demonstrations and test inputs."""
    for version, counts in {
        "arc1": ((400, 1302, 416), (400, 1363, 419)),
        "arc2": ((1000, 3232, 1076), (120, 358, 172)),
    }.items():
        for puzzles, (tasks, pairs, tests) in zip(load_arc(version), counts, strict=True):
            assert len(puzzles) == tasks
            assert sum(len(p.train) for p in puzzles) == pairs
            assert sum(len(p.test) for p in puzzles) == tests
            assert max(p.largest for p in puzzles) <= 30


def test_the_task_of_the_configuration_agrees_with_its_formulas() -> None:
    config = ArcTask(side=8, tasks=5, augmentations=2)
    task = make_puzzle_task(config, seed=0)
    assert (task.puzzle_identifiers, task.vocabulary, task.time) == (1 + 10 * 3, 12, 64)
    assert config.puzzle_identifiers == task.puzzle_identifiers
    assert ArcTask(version="arc2").puzzle_identifiers == 1 + 1120 * 1001
    batch = task.examples(torch.arange(40), 0)
    assert batch.inputs.max() <= 11
    assert batch.puzzle_ids.min() >= 1
    assert batch.puzzle_ids.max() < task.puzzle_identifiers
    with pytest.raises(ConfigError, match=r"only 1 tasks of arc1 have grids up to side 3.*at most 1"):
        make_puzzle_task(ArcTask(side=3, tasks=4), seed=0)


def test_a_grid_stands_in_the_square_with_its_end_marked() -> None:
    tokens = flatten(grid("12", "00", "34"), 5, down=1, right=2).reshape(5, 5)
    assert tokens.tolist() == [[0, 0, 0, 0, 0], [0, 0, 3, 4, 1], [0, 0, 2, 2, 1], [0, 0, 5, 6, 1], [0, 0, 1, 1, 0]]
    assert flatten(grid("12"), 2).tolist() == [3, 4, 1, 1]
    assert unflatten(flatten(grid("12", "00", "34"), 5), 5).tolist() == [[1, 2], [0, 0], [3, 4]]
    assert unflatten(np.zeros(25, dtype=np.int64), 5).shape == (0, 0)


def test_a_torn_answer_is_cut_to_its_largest_rectangle() -> None:
    """Three columns hold in one row, two in three rows: 2 x 3 cells are more than 3."""
    square = np.array([[3, 3, 3, 1], [4, 4, 1, 5], [5, 5, 0, 0], [0, 6, 6, 6]])
    assert unflatten(square.ravel(), 4).tolist() == [[1, 1], [2, 2], [3, 3]]


@settings(max_examples=40, deadline=None)
@given(
    number=st.integers(0, 7),
    order=st.permutations(range(1, 10)),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 999),
)
def test_an_image_is_undone(number: int, order: list[int], shape: tuple[int, int], seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, 10, shape)
    image = Image(number, (0, *order))
    assert (image.undo(image.of(cells)) == cells).all()
    assert (image.undo(unflatten(flatten(image.of(cells), 7), 7)) == cells).all()
    assert ((image.of(cells) == 0).sum()) == (cells == 0).sum(), "the background stays"


def test_images_are_different_and_the_first_is_the_task_itself(planted: Arc) -> None:
    for number in (0, 1):
        images = planted.images(number)
        assert len(images) == 7
        looks = {image.of(planted.puzzles[number].train[0][0]).tobytes() for image in images}
        assert images[0].of(PLANTED.train[0][0]).tolist() == PLANTED.train[0][0].tolist()
        assert len(looks) > 1
    plain = puzzle("plain", (grid("0"), grid("0")), (grid("0"), grid("0")))
    assert len(Arc(SMALL, 0, ([plain], [plain])).images(0)) == 1, "all its images look alike"


def test_every_image_has_its_identifier_and_test_answers_are_never_trained(planted: Arc) -> None:
    """Seven identifiers for each of two tasks; of the evaluation task only the demonstration is trained."""
    rows = torch.arange(600)
    batch = planted.examples(rows, 0)
    assert set(batch.puzzle_ids.tolist()) == set(range(1, 15))
    trained = set()
    for tokens, targets, identifier in zip(batch.inputs.numpy(), batch.targets, batch.puzzle_ids.tolist(), strict=True):
        number, image = divmod(identifier - 1, 7)
        square = tokens.reshape(6, 6)
        rows_used, columns_used = (np.flatnonzero((square >= 2).any(axis=axis)) for axis in (1, 0))
        cut = square[rows_used[0] : rows_used[-1] + 1, columns_used[0] : columns_used[-1] + 1] - 2
        trained.add((number, planted.images(number)[image].undo(cut).tobytes()))
        assert (targets != 0).all(), "padding is unscored"
    wanted = {(0, pair[0].tobytes()) for pair in (*OTHER.train, *OTHER.test)} | {(1, PLANTED.train[0][0].tobytes())}
    assert trained == wanted


def test_examples_are_translated_with_their_answers(planted: Arc) -> None:
    batch = planted.examples(torch.arange(200), 0)
    corners = {tuple(np.argwhere(tokens.reshape(6, 6) >= 2).min(axis=0)) for tokens in batch.inputs.numpy()}
    assert len(corners) > 8
    still = Arc(SMALL.model_copy(update={"translate": False}), 0, ([OTHER], [PLANTED])).examples(torch.arange(50), 0)
    assert (still.inputs[:, 0] >= 2).all()


def answers_to(task: Arc, grids: list[np.ndarray]) -> torch.Tensor:
    """For every evaluation example, the given grid in the example's own image."""
    images = task.images(1)
    rows = task.evaluation_limit
    tokens = [flatten(images[row % len(images)].of(grids[row]), 6) for row in range(rows)]
    return torch.from_numpy(np.stack(tokens))


def test_the_right_answer_wins_only_after_turning_back_and_pooling(planted: Arc) -> None:
    """Seven images. The right grid is answered in three of them, two wrong grids in two each. In the images' own colours
    and turns all seven answers look different, so without turning back nothing has more than one vote."""
    right, wrong, worse = PLANTED.test[0][1], grid("111"), grid("222", "222")
    given = [wrong, right, worse, right, wrong, right, worse]
    answers = answers_to(planted, given)
    rows, sure = torch.arange(7), torch.tensor([0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9], dtype=torch.float64)
    assert len({tuple(row) for row in answers.tolist()}) > 5, "raw answers hardly agree"
    ranked = planted.attempts(rows, answers, sure)[1, 0]
    assert [found.tolist() for found in ranked] == [right.tolist(), wrong.tolist(), worse.tolist()]
    pooled = planted.pooled_metrics(answers, sure, rows)
    assert pooled["pass_at_1"].value.item() == pooled["pass_at_2"].value.item() == 1.0
    alone = planted.pooled_metrics(answers[:1], sure[:1], rows[:1])
    assert alone["pass_at_2"].value.item() == 0.0, "the task itself alone is answered wrongly"


def test_votes_come_before_confidence_and_confidence_breaks_ties(planted: Arc) -> None:
    right, wrong, worse = PLANTED.test[0][1], grid("111"), grid("222", "222")
    given = [wrong, wrong, worse, worse, right, right, right]
    answers, rows = answers_to(planted, given), torch.arange(7)
    sure = torch.tensor([0.2, 0.2, 0.6, 0.6, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert [g.tolist() for g in planted.attempts(rows, answers, sure)[1, 0]] == [g.tolist() for g in (right, worse, wrong)]
    third = planted.pooled_metrics(answers[:5], sure[:5], rows[:5])
    assert (third["pass_at_2"].value.item(), third["pass_at_5"].value.item()) == (0.0, 1.0), "one vote is third of three"


def test_each_evaluation_pools_its_own_answers_only(planted: Arc) -> None:
    right, wrong = PLANTED.test[0][1], grid("111")
    rows, sure = torch.arange(7), torch.ones(7, dtype=torch.float64)
    assert planted.pooled_metrics(answers_to(planted, [right] * 7), sure, rows)["pass_at_1"].value.item() == 1.0
    assert planted.pooled_metrics(answers_to(planted, [wrong] * 7), sure, rows)["pass_at_1"].value.item() == 0.0


def test_a_task_with_two_inputs_counts_by_halves() -> None:
    task = Arc(SMALL.model_copy(update={"augmentations": 0}), 0, ([PLANTED], [OTHER]))
    assert task.evaluation_limit == 2
    batch = task.evaluation_examples(torch.arange(2))
    answers = batch.targets.clamp(min=0)
    assert (batch.targets == UNSCORED).any()
    answers[1, 0] = 11
    pooled = task.pooled_metrics(answers, torch.ones(2), torch.arange(2))
    assert (pooled["pass_at_1"].value.item(), pooled["pass_at_1"].items) == (0.5, 1)
    assert pooled["score"].value.item() == 0.5
    submission = task.submission(torch.arange(2), answers, torch.ones(2))
    score = score_submission(submission, [OTHER])
    assert (score.solved, score.inputs, score.by_input, score.by_task) == (1, 2, 0.5, 0.5)


def test_a_submission_is_scored_by_the_public_rules() -> None:
    """Two tasks with one and two inputs: either attempt counts, a grid must be right in shape and every cell."""
    right = {
        "planted": [{"attempt_1": [[1]], "attempt_2": [[5, 4, 0], [6, 0, 7]]}],
        "other": [{"attempt_1": [[1, 2], [5, 6]], "attempt_2": [[0]]}, {"attempt_1": [[7, 9]], "attempt_2": [[7], [8]]}],
    }
    score = score_submission(right, [PLANTED, OTHER])
    assert (score.solved, score.inputs) == (2, 3)
    assert score.by_input == pytest.approx(2 / 3)
    assert score.by_task == pytest.approx((1 + 0.5) / 2)
    nearly = {**right, "planted": [{"attempt_1": [[5, 4, 0], [6, 0, 8]], "attempt_2": [[5, 4, 0, 6, 0, 7]]}]}
    assert score_submission(nearly, [PLANTED, OTHER]).solved == 1
    with pytest.raises(StoreError, match="the task other has no answer"):
        score_submission({"planted": right["planted"]}, [PLANTED, OTHER])
    with pytest.raises(StoreError, match="the task other has 2 test inputs and 1 answers"):
        score_submission({**right, "other": right["other"][:1]}, [PLANTED, OTHER])


def test_tasks_left_out_are_forgiven_on_request_only() -> None:
    """One of two tasks answered, one of its two inputs right."""
    half = {"other": [{"attempt_1": [[1, 2], [5, 6]], "attempt_2": [[0]]}, {"attempt_1": [[7]], "attempt_2": [[0]]}]}
    score = score_submission(half, [PLANTED, OTHER], partial=True)
    assert (score.solved, score.inputs, score.by_task) == (1, 2, 0.5)
    with pytest.raises(StoreError, match=r"the task planted has no answer \(1 such\)"):
        score_submission(half, [PLANTED, OTHER])
    with pytest.raises(StoreError, match=r"the task other is no task of this set \(1 such\)"):
        score_submission(half, [PLANTED], partial=True)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("[[1, 2], [3]]", "is not rectangular"),
        ("[[1, 10]]", "has the cell '10'"),
        ("[[1, 2.0]]", "has the cell '2.0'"),
        ("[[true]]", "has the cell 'True'"),
        ("[]", "is no list of rows"),
        ("[3, 4]", "is no list of rows"),
        (str([[0]] * 31), "has 31 rows of 1"),
        ("null", "is no list of rows"),
    ],
)
def test_a_grid_that_is_none_is_refused_by_name(tmp_path: Path, grid: str, said: str) -> None:
    path = tmp_path / "submission.json"
    path.write_text('{"planted": [{"attempt_1": [[0]], "attempt_2": ' + grid + "}]}")
    with pytest.raises(StoreError) as refused:
        read_submission(path)
    assert f"attempt_2 at test input 1 of task planted {said}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is no submission"),
        ("{}", "is no submission"),
        ("{", "cannot be read as JSON"),
        ('{"planted": [[[1]]]}', "the answers of task planted are no list of attempts"),
        ('{"planted": [{"attempt_1": [[0]]}]}', "attempt_2 at test input 1 of task planted is missing"),
    ],
)
def test_a_file_that_is_no_submission_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "submission.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=said):
        read_submission(path)


def test_the_right_answers_of_the_real_evaluation_set_score_everything() -> None:
    _, evaluation = load_arc("arc2")
    perfect = {p.id: [{"attempt_1": [[0]], "attempt_2": out.tolist()} for _, out in p.test] for p in evaluation}
    score = score_submission(perfect, evaluation)
    assert (score.solved, score.inputs, score.by_task) == (172, 172, 1.0)
