"""``looprepro data``: prepare text of one's own, list it, and what a wrong request is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.cli.data import amount
from looprepro.files.errors import ConfigError


def test_text_of_ones_own_is_prepared_planned_and_listed(here: Path, looprepro: Callable[..., Any]) -> None:
    (here / "mine.jsonl").write_text(
        "".join(json.dumps({"text": f"number {i} of many numbers " * 9}) + "\n" for i in range(80))
    )
    done = looprepro("data", "prepare", "--text", "mine.jsonl", "--vocabulary", "270", "--sequence", "32")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("data/mine: text: ")
    assert "vocabulary 270" in first
    assert second.startswith("data/mine: ")
    assert "rows of 32 tokens" in second
    assert float(second.split("% padding")[0].split()[-1]) < 1.0
    assert (here / "data" / "mine" / "packing-train-33.npz").is_file()
    listed = looprepro("data", "list", "--json")
    document = json.loads(listed.stdout)
    assert document["prepared"]["mine"]["manifest"]["vocabulary"] == 270
    assert "fineweb-edu" in document["known"]
    plain = looprepro("data", "list").stdout.splitlines()
    assert plain[0].startswith("mine ")
    assert any(line.startswith("offline-smoke") and "not prepared" in line for line in plain)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("finewebedu",), "unknown data set 'finewebedu'"),
        ((), "no data set named"),
        (("offline-smoke", "--revision", "main"), "--revision means nothing for offline-smoke"),
        (("fineweb-edu", "--tokens", "many"), "'many' is not a number of tokens"),
        (("--text", "nothing.txt"), "nothing.txt does not exist"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, here: Path, looprepro: Callable[..., Any]
) -> None:
    done = looprepro("data", "prepare", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "data").exists()


def test_amounts() -> None:
    assert [amount(text) for text in ("5B", "1.2b", "300M", "20k", "1_000", "7")] == [
        5_000_000_000,
        1_200_000_000,
        300_000_000,
        20_000,
        1000,
        7,
    ]
    for wrong in ("", "B", "5T", "-1M", "0", "nan"):
        with pytest.raises(ConfigError):
            amount(wrong)


def test_what_cells_need_is_prepared_or_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from looprepro.cli.required_data import prepare_required
    from looprepro.config.cell import BudgetEvaluation, LanguageEvaluation, LanguageTask
    from looprepro.data import catalog
    from looprepro.files.errors import StoreError

    class Reads:
        def __init__(self, data: str) -> None:
            self.task = LanguageTask(data=data)

    monkeypatch.setenv("LOOPREPRO_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    prepared = []
    monkeypatch.setattr(
        catalog.Entry, "prepare", lambda entry, folder, options, say: prepared.append(folder.name) or "there it is"
    )
    prepare_required([Reads("offline-mini"), Reads("offline-mini")], [LanguageEvaluation(T=1), BudgetEvaluation(T=1)])
    assert prepared == ["offline-mini"]
    for needed, said in (
        ([Reads("fineweb-edu")], "looprepro data prepare fineweb-edu; without network use task.data=offline-mini"),
        ([Reads("mine")], "looprepro data prepare --text FILES --name mine"),
    ):
        with pytest.raises(StoreError, match=said):
            prepare_required(needed)
    asked = LanguageEvaluation(T=1, metrics=("lambada",))
    with pytest.raises(StoreError, match="looprepro data prepare lambada"):
        prepare_required([], [asked])
    with pytest.raises(StoreError, match=r"mine\.jsonl does not exist"):
        prepare_required([], [asked.model_copy(update={"lambada": "./mine.jsonl"})])
    prepare_required([], [asked.model_copy(update={"lambada": "hub"})])
    (tmp_path / "lambada").mkdir()
    (tmp_path / "lambada" / "manifest.json").write_text("{}")
    prepare_required([], [asked])
