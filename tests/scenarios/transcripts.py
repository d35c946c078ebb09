"""Golden transcripts: files of commands, each followed by what a machine answered to it.

    # A comment says what the reader should look at.
    a command
    ----
    what happened, line by line

Blocks are separated by empty lines. The first block may be `settings NAME=VALUE ...`, without an answer. A driver (one
per machine, see the `*_transcript` modules) runs the commands; `replay` compares. With REWRITE=1 in the environment,
it replaces what the file expects by what happened: read the diff before you believe it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).parent
NOTHING = "nothing"


class Driver(Protocol):
    def run(self, line: str) -> str:
        """Carry out one command, and say what happened."""
        ...


def scenarios(folder: str) -> list[Path]:
    found = sorted((HERE / folder).glob("*.txt"))
    assert found, f"no transcripts in {folder}"
    return found


def replay(path: Path, begin: Callable[[dict[str, str]], Driver]) -> None:
    """`begin` makes the driver from the settings that the file names."""
    happened: list[str] = []
    driver: Driver | None = None
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("# ")]
        command = lines[len(comments)]
        if command.startswith("settings "):
            assert driver is None, "settings come first"
            driver = begin(dict(word.split("=") for word in command.split()[1:]))
            happened.append("\n".join([*comments, command]))
            continue
        driver = driver or begin({})
        happened.append("\n".join([*comments, command, "----", driver.run(command)]))
    told = "\n\n".join(happened) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
