"""Every example runs and says what it shows. They fail by themselves if it does not come true."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skidway.testing import Broker

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "at_most_once.py": "lost [4]",
    "at_least_once.py": "repeated [4]",
    "idempotent_processing.py": "10 orders, each once; 11 duplicates passed over",
    "dead_letters.py": "8 processed, 2 set aside",
    "image_workers.py": "11 pictures resized, 1 set aside after 3 attempts: picture-7",
    "order_saga.py": "20 charged, 19 shipped with a receipt, 1 refunded",
}
TRANSACTIONS = {
    "bank_transfer.py": "committed: -169 and 169, together 0",
    "read_process_write.py": "13 rows were written, 10 of them committed",
    "crash_and_check.py": "4 kills",
}
"""They need a broker that serves transactions."""


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SKIDWAY_TEST_BOOTSTRAP")
    return given or request.getfixturevalue("broker").bootstrap


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - {"setting.py"} == {*SAYS, *TRANSACTIONS}


def run(example: str, bootstrap: str) -> str:
    command = [sys.executable, str(EXAMPLES / example), bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("example", SAYS)
def test_example(example: str, group_bootstrap: str) -> None:
    assert SAYS[example] in run(example, group_bootstrap)


@pytest.fixture(scope="module")
def transacting() -> Iterator[str]:
    given = os.environ.get("SKIDWAY_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with Broker() as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("example", TRANSACTIONS)
def test_example_with_transactions(example: str, transacting: str) -> None:
    assert TRANSACTIONS[example] in run(example, transacting)
