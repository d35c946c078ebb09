"""The examples of docs/reference/cli.md run, and end as they are shown to end."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skidway.testing import Broker

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
SHOWN = ("topic", "produce", "consume", "queue", "config", "profile")
"""Sections whose examples need nothing but a broker."""
ELSEWHERE = ("--follow", "--profile staging", "topic reassign")
"""Examples that never end, ask brokers that are not here, or need several."""
PRELUDE = """
skidway topic create orders -c max.message.bytes=1000 --if-missing
skidway topic create users invoices orders-eu --if-missing
echo hello | skidway produce orders
skidway produce orders-eu < orders.txt
"""


def sections() -> dict[str, list[str]]:
    """The console blocks of each section."""
    parts = re.split(r"^## skidway (\w+)\n", REFERENCE, flags=re.MULTILINE)
    return {
        name: re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def examples(block: str) -> Iterator[tuple[str, str | None]]:
    """Each command, and the error that is shown for it."""
    for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *output = piece.splitlines()
        errors = [line for line in output if line.startswith("error: ")]
        if not any(word in command for word in ELSEWHERE):
            yield command, errors[0] if errors else None


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    with Broker(node_id=2) as broker:
        yield broker


def in_bash(script: str, folder: Path, bootstrap: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -c 'import sys; from skidway.cli.main import main; sys.exit(main())'"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKIDWAY_")}
    environment = {**kept, "SKIDWAY_BOOTSTRAP": bootstrap, "XDG_CONFIG_HOME": str(folder), "NO_COLOR": "1"}
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail\nskidway() {{ {program} "$@"; }}\n{script}'],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", SHOWN)
def test_the_examples_of_a_section(name: str, own_broker: Broker, tmp_path: Path) -> None:
    lines = ["a:1 apple", "b:2 pears", "c:" + "x" * 3000, "d:4", "e:5"]
    (tmp_path / "orders.txt").write_text("\n".join(lines) + "\n")
    blocks = sections()[name]
    assert blocks, f"no examples in the section {name}"
    for number, block in enumerate(blocks):
        if number == (1 if name == "topic" else 0):
            in_bash(PRELUDE, tmp_path, own_broker.bootstrap)
        for command, error in examples(block):
            ended = in_bash(command, tmp_path, own_broker.bootstrap)
            if error is None:
                assert ended.returncode == 0, f"{command}: {ended.stderr}"
            else:
                assert ended.returncode == 1, f"{command}: {ended.stdout}"
                assert ended.stderr.strip() == error, command
