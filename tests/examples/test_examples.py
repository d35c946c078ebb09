"""Every example runs and says what it shows. They fail by themselves if it does not come true."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "at_most_once.py": "lost [4]",
    "at_least_once.py": "repeated [4]",
    "idempotent_processing.py": "10 orders, each once; 11 duplicates passed over",
    "dead_letters.py": "8 processed, 2 set aside",
}


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SKIDWAY_TEST_BOOTSTRAP")
    return given or request.getfixturevalue("broker").bootstrap


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - {"setting.py"} == set(SAYS)


@pytest.mark.parametrize("example", SAYS)
def test_example(example: str, group_bootstrap: str) -> None:
    command = [sys.executable, str(EXAMPLES / example), group_bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert SAYS[example] in ended.stdout
