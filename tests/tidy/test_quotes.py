"""Log lines and errors that the documents quote are those of the sources.

A quoted line has to contain the fixed words of some string in src/, at least 20 characters of them. Whoever improves a
message finds the pages here that quote it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(?:text|console)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"^(?:(?:WARNING|INFO|ERROR) skidway\.\w+ |error: )(.+)$", re.MULTILINE)
FIXED_CHARACTERS_MIN = 20


@cache
def sentences() -> frozenset[tuple[str, ...]]:
    """Every string of the sources that is long enough to be told from others, as the words between its values."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        if path.parent.name != "schema":
            for node in ast.walk(ast.parse(path.read_text())):
                pieces = tuple(literals(node))
                if sum(len(piece) for piece in pieces) >= FIXED_CHARACTERS_MIN:
                    found.add(pieces)
    return frozenset(found)


def literals(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def is_said(line: str) -> bool:
    return any(in_order(pieces, line) for pieces in sentences())


def in_order(pieces: tuple[str, ...], line: str) -> bool:
    at = 0
    for piece in pieces:
        found = line.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def quotes(page: Path) -> list[str]:
    return [line for block in BLOCK.findall(page.read_text()) for line in QUOTED.findall(block)]


@pytest.mark.parametrize("page", [page for page in PAGES if quotes(page)], ids=lambda page: page.name)
def test_quoted_messages_are_those_of_the_sources(page: Path) -> None:
    assert [line for line in quotes(page) if not is_said(line)] == []


def test_a_message_that_was_changed_is_found() -> None:
    assert is_said("cannot reach 127.0.0.1:1: connection refused; is the broker running?")
    assert not is_said("nothing here says anything like this sentence about a broker")
