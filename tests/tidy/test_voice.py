"""The documents are in plain English: words of an older, translated voice do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
BETTER = {
    r"\bwho(m)?ever\b": "name who it is: the client, the leader, every replica",
    r"\banew\b": "again, or: starts over",
    r"\bh(ung|angs?|anging) up\b": "closes the connection",
    r"\bunless told otherwise\b": "by default",
    r"\bis no (broker|place|topic|measure|limit)\b": "is not a …",
    r"\bheard? of no\b": "hears from no …",
    r"\b(is|was|were) told\b": "gets, learns, reads",
    r"\bshall\b": "must, or the plain verb",
    r"\bin vain\b": "without success",
    r"\bthrown (away|out)\b": "deleted, removed",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    prose = CODE.sub("", page.read_text())
    found = {match[0]: better for word, better in BETTER.items() for match in re.finditer(word, prose, re.IGNORECASE)}
    assert found == {}
