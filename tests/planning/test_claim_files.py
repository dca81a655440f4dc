"""Files of claims: whose letters are whose, and that a changed test is listed where the docs promise it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from looprepro.files.errors import ConfigError
from looprepro.planning.claims import PAPERS, load_claims

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_a_test_that_was_changed_after_its_data_is_listed_and_says_so() -> None:
    text = (DOCS / "claims.md").read_text(encoding="utf-8").split("## Changed after data had been seen")[1]
    listed = {claim for line in text.splitlines() for claim in re.findall(r"\b[CF][0-9]+[a-z]?\b", line)}
    claims = {claim.id: claim for paper in PAPERS for claim in load_claims(paper)}
    revised = {id for id, claim in claims.items() if claim.revised}
    assert revised <= listed
    assert "F40" in listed - revised, "other numbers, the same test"
    assert claims["C30"].remark == f"{claims['C30'].note} The test was changed when data were known (docs/claims.md)."


@pytest.mark.parametrize(("id", "is_taken"), [("C1", True), ("F12a", True), ("CX1", False), ("W3", False)])
def test_letters_of_the_two_papers_are_theirs(tmp_path: Path, id: str, is_taken: bool) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"claims:\n  - {{id: {id}, family: own, says: x, place: here, parts: [{{kind: elsewhere, where: nowhere}}]}}\n"
    )
    if is_taken:
        with pytest.raises(ConfigError, match="could be one of the two papers'"):
            load_claims("mine", tmp_path)
    else:
        assert [claim.id for claim in load_claims("mine", tmp_path)] == [id]
