"""Best-fit packing: every token once, little padding, the rule worked out by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from looprepro.tasks.language.packing import keep, kept, pack


def pieces(plan):
    """Rows as lists of (start, tokens)."""
    every = list(zip(plan.starts.tolist(), plan.counts.tolist(), strict=True))
    return [every[a:b] for a, b in zip(plan.first[:-1], plan.first[1:], strict=True)]


def test_the_rule_by_hand():
    # Documents at 0 (5 tokens), 5 (3), 8 (9), 17 (4); rows of 8. Row 0: the longest that fits is 5, then 3: full.
    # Row 1: 4 fits; nothing fits the other 4, so the shortest left (9) is cut. Row 2: its rest of 5, and padding.
    plan = pack(np.array([5, 3, 9, 4]), 8)
    assert pieces(plan) == [[(0, 5), (5, 3)], [(17, 4), (8, 4)], [(12, 5)]]
    assert plan.cut == 1
    assert plan.filled.tolist() == [8, 8, 5]
    assert plan.padding_share == 3 / 24


def test_only_what_is_in_the_buffer_can_be_chosen():
    # With a buffer of one, the next document is always taken, whatever would fit better.
    assert pieces(pack(np.array([5, 4, 3]), 8, buffer=1)) == [[(0, 5), (5, 3)], [(8, 1), (9, 3)]]
    assert pieces(pack(np.array([5, 4, 3]), 8, buffer=3)) == [[(0, 5), (9, 3)], [(5, 4)]]


def test_the_shortest_is_cut_where_none_fits():
    # Row of 4; 6 and 5 are both too long: 5 is cut, its rest of 1 waits.
    assert pieces(pack(np.array([6, 5]), 4, buffer=2))[0] == [(6, 4)]


@given(lengths=st.lists(st.integers(1, 40), max_size=80), row=st.integers(2, 30), buffer=st.integers(1, 20))
def test_every_token_is_in_exactly_one_row_and_only_the_last_row_is_padded(lengths, row, buffer):
    plan = pack(np.array(lengths, dtype=np.int64), row, buffer)
    covered = np.concatenate([np.arange(s, s + c) for s, c in zip(plan.starts, plan.counts, strict=True)] or [[]])
    assert sorted(covered.tolist()) == list(range(sum(lengths)))
    assert (plan.filled[:-1] == row).all()
    # No piece crosses the end of a document.
    document = np.repeat(np.arange(len(lengths)), lengths)
    assert all(document[s] == document[s + c - 1] for s, c in zip(plan.starts, plan.counts, strict=True))


def test_documents_like_those_of_the_web_leave_no_padding_to_speak_of():
    """Lognormal lengths of mean 1030 and median 620: the public packer's rows are 63% padding."""
    draw = np.random.default_rng(0)
    lengths = np.maximum(draw.lognormal(np.log(620), (2 * np.log(1030 / 620)) ** 0.5, 20_000).astype(np.int64), 1)
    plan = pack(lengths, 2049)
    assert plan.padding_share < 0.001
    assert int(plan.counts.sum()) == int(lengths.sum())


def test_nothing_gives_no_rows():
    plan = pack(np.zeros(0, np.int64), 8)
    assert (plan.rows, plan.padding_share, plan.filled.tolist()) == (0, 0.0, [])


def test_a_kept_plan_is_read_back_for_its_own_corpus_only(tmp_path, capsys):
    plan = pack(np.array([5, 3, 9, 4]), 8)
    path = tmp_path / "plan.npz"
    assert kept(path, 8, "a") is None
    keep(path, plan, "a")
    again = kept(path, 8, "a")
    assert again is not None
    assert pieces(again) == pieces(plan)
    assert (again.row_tokens, again.cut, again.filled.tolist()) == (8, 1, plan.filled.tolist())
    assert kept(path, 8, "b") is None
    data = bytearray(path.read_bytes())
    data[data.index((17).to_bytes(8, "little"))] ^= 255  # in the starts
    path.write_bytes(data)
    assert kept(path, 8, "a") is None
    assert "planning again" in capsys.readouterr().out
