"""Transcripts of a group coordinator; `group_transcript` says what the commands mean.

REWRITE=1 replaces what the files expect by what happened; read the diff before believing it.
"""

import os
from pathlib import Path

import pytest
from group_transcript import Transcript

from skidway.groups.settings import GroupSettings

SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    happened = []
    transcript = None
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("# ")]
        command = lines[len(comments)]
        if command.startswith("settings"):
            assert transcript is None
            pairs = (word.split("=") for word in command.split()[1:])
            transcript = Transcript(GroupSettings(**{name: int(value) for name, value in pairs}))  # type: ignore[arg-type]
            happened.append("\n".join([*comments, command]))
            continue
        transcript = transcript or Transcript(GroupSettings())
        happened.append("\n".join([*comments, command, "----", transcript.run(command)]))
    told = "\n\n".join(happened) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
