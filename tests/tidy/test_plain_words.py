"""What src shows to a user is plain English: the words of an older, translated voice do not come back.

Checked are all string literals that are not docstrings: error texts, log lines, help, descriptions of settings.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

OLD_VOICE = {
    r"\banew\b": "again, or from another replica",
    r"\bask(ed)? again\b|\btried again\b": "retry: name who retries",
    r"\bcannot be believed\b|\bon its word\b": "is damaged, is wrong",
    r"\b(hang|hangs|hung) up on\b": "closes the connection",
    r"\bheard? of\b": "gets no heartbeats from",
    r"\bin vain\b": "without success",
    r"(?<!there )\bis no (address|duration|format|list|measure|message|number|place|size|state|time)\b": "is not a …",
    r"\bno (broker|member|topic|voter) any more\b": "no longer a …",
    r"\b(is|are|was|were) told\b|\btells? (of|that|what|which|who)\b": "returns, logs, shows",
    r"\bshall\b": "must, or the plain verb",
    r"\btakes? no (more )?(writes|bytes|messages)\b": "accepts no …",
    r"\bwhoever\b": "name the actor",
}
"""A phrase, and what to write in its place."""


def literals(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(node) for node in statements if isinstance(node, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_the_old_voice_stays_away() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {text!r}; better: {better}"
        for path in SOURCES
        for line, text in literals(path)
        if " " in text
        for phrase, better in OLD_VOICE.items()
        if (match := re.search(phrase, text, re.IGNORECASE)) is not None
    ]
    assert found == []
