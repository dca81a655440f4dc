"""Results and evaluations: published once, whole or not at all, trusted by nonce."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from looprepro.files.errors import ConfigError, IdentityCollision, StoreError
from looprepro.store import Attempt, Store


def _claim(store: Store, cell: str = "cell-1") -> Attempt:
    attempt = store.claim(cell)
    assert attempt is not None
    return attempt


def test_a_finished_cell_is_done_with_its_evaluations_and_weights(store: Store, finished: Attempt) -> None:
    presence = store.presence(["cell-1"])["cell-1"]
    assert (presence.status, presence.step, presence.evaluations, presence.has_weights) == ("done", 30, {"T8-a"}, True)
    assert presence.cause == ""


def test_the_first_result_stays(store: Store, finished: Attempt) -> None:
    second = _claim(store)
    assert second.publish_result({"status": "diverged", "step": 1}) is False
    assert second.result() == json.loads((second.cell_path / "result.json").read_text())
    assert store.presence(["cell-1"])["cell-1"].status == "done"


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign nonce", "no such attempt", "unfinished status"])
def test_a_result_that_cannot_be_trusted_is_named_missing_and_replaced(store: Store, finished: Attempt, damage: str) -> None:
    path = finished.cell_path / "result.json"
    document: dict[str, Any] = json.loads(path.read_text())
    texts = {
        "truncated": path.read_text()[:-20],
        "empty": "",
        "foreign nonce": json.dumps({**document, "nonce": "0" * 32}),
        "no such attempt": json.dumps({**document, "attempt": 9}),
        "unfinished status": json.dumps({**document, "status": "running"}),
    }
    path.write_text(texts[damage])
    presence = store.presence(["cell-1"])["cell-1"]
    assert presence.status == "lost"
    assert str(path) in presence.cause
    second = _claim(store)
    assert second.result() is None
    assert second.publish_result({"status": "done", "step": 30}) is True
    assert store.presence(["cell-1"])["cell-1"].status == "done"
    aside = [name for name in os.listdir(second.cell_path) if name.endswith(".untrusted")]
    assert [(second.cell_path / name).read_text() for name in aside] == [texts[damage]]  # nothing is thrown away


def test_a_truncated_evaluation_is_named_and_counted_missing(store: Store, finished: Attempt) -> None:
    path = finished.cell_path / "evaluations" / "T8-a.json"
    path.write_bytes(path.read_bytes()[:40])
    presence = store.presence(["cell-1"])["cell-1"]
    assert presence.status == "done"
    assert presence.evaluations == frozenset()
    assert str(path) in presence.cause
    second = _claim(store)
    assert second.write_evaluation("T8-a", {"evaluation": {"T": 8}, "metrics": {}, "series": {}}) is True
    assert store.presence(["cell-1"])["cell-1"].evaluations == {"T8-a"}


def test_a_value_that_is_not_finite_is_never_stored(store: Store) -> None:
    attempt = _claim(store)
    with pytest.raises(StoreError, match="not finite"):
        attempt.write_evaluation("T8", {"evaluation": {"T": 8}, "metrics": {"loss": {"value": float("nan"), "items": 1}}})
    assert not (attempt.cell_path / "evaluations").exists()


def test_weights_that_lead_out_of_the_cell_are_no_weights(store: Store, tmp_path: Path) -> None:
    attempt = _claim(store)
    (tmp_path / "outside").mkdir()
    attempt.publish_result({"status": "done", "step": 1, "weights": "../../../outside"})
    assert store.presence(["cell-1"])["cell-1"].has_weights is False


def test_a_full_disk_keeps_what_was_there_and_says_what_to_do(
    store: Store, finished: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = _claim(store)
    before = sorted(os.listdir(second.cell_path / "evaluations"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("looprepro.files.atomic.os.fsync", full)
    with pytest.raises(StoreError, match=r"disk is full.*looprepro gc"):
        second.write_evaluation("T16", {"evaluation": {"T": 16}, "metrics": {}})
    assert sorted(os.listdir(second.cell_path / "evaluations")) == before
    assert store.presence(["cell-1"])["cell-1"].evaluations == {"T8-a"}


def test_a_claim_on_a_full_disk_leaves_no_half_attempt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("looprepro.store.reservation.os.fsync", full)
    with pytest.raises(StoreError, match="disk is full"):
        store.claim("cell-1")
    assert os.listdir(store.layout.attempts("cell-1")) == []


def test_another_configuration_under_the_same_id_is_an_error_with_the_difference(store: Store) -> None:
    store.register("cell-1", {"model": {"width": 64, "heads": 4}, "seed": 1})
    store.register("cell-1", {"seed": 1, "model": {"heads": 4, "width": 64}})  # the same
    for act in (store.register, lambda name, config: store.verify([(name, config)])):
        with pytest.raises(IdentityCollision, match=r"model\.width: stored 64, asked 128") as caught:
            act("cell-1", {"model": {"width": 128, "heads": 4}, "seed": 1})
        assert caught.value.exit_code == 2
    assert json.loads((store.layout.cell("cell-1") / "cell.json").read_text())["config"]["model"]["width"] == 64


def test_a_truncated_configuration_is_written_anew(store: Store) -> None:
    store.register("cell-1", {"seed": 1})
    path = store.layout.cell("cell-1") / "cell.json"
    path.write_text('{"schema": 1, "con')
    store.verify([("cell-1", {"seed": 1})])
    store.register("cell-1", {"seed": 1})
    assert json.loads(path.read_text()) == {"schema": 1, "config": {"seed": 1}}


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "-rf", "a\nb", "a b", "$(x)"])
def test_a_name_that_is_not_one_plain_component_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ConfigError):
        store.claim(name)
    assert not store.root.exists()


def test_a_request_is_kept_once_and_a_broken_one_is_named(store: Store) -> None:
    request = {"sweep": "../my sweep;rm.yaml", "scale": "smoke", "overrides": [], "cells": [{"id": "cell-1"}]}
    path = store.record_request(request)
    assert store.record_request(request) == path
    assert path.parent == store.root / "requests" / "smoke"
    assert path.name.startswith("my-sweep-rm-")
    other = store.record_request({**request, "cells": []})
    other.write_text("{")
    assert [r["cells"] for r in store.requests("smoke")] == [[{"id": "cell-1"}]]
    assert [str(other) in problem for problem in store.request_problems("smoke")] == [True]
    assert store.requests("paper") == []


def test_what_was_asked_for_last_is_read_last_whatever_the_files_say(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [{"sweep": "x", "scale": "smoke", "overrides": [], "cells": [{"id": f"cell-{i}"}]} for i in range(5)]
    for turn, i in enumerate((3, 1, 4, 0, 2, 3)):
        monkeypatch.setattr(time, "time", lambda turn=turn: 1e9 + turn)
        os.utime(store.record_request(asked[i]), (-turn, -turn))  # as a copy may leave them
    assert [request["cells"][0]["id"] for request in store.requests("smoke")] == [f"cell-{i}" for i in (1, 4, 0, 2, 3)]
    monkeypatch.undo()
    store.record_request(asked[0])
    assert len(list(store.layout.requests("smoke").iterdir())) == 5
    assert store.requests("smoke")[-1]["cells"] == asked[0]["cells"], "asking again makes it the latest"
