"""What keeps the house tidy and no linter knows."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_stay_small() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_stay_small() -> None:
    long = {
        f"{relative(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_modules_open_with_a_docstring() -> None:
    silent = [
        relative(path) for path in SOURCES if path.read_text() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports them by name, whatever folder they are in."""
    names = [
        path.name for path in sorted((ROOT / "tests").rglob("*.py")) if path.name not in ("conftest.py", "__init__.py")
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
