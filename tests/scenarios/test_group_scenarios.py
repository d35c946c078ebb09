"""Transcripts of a group coordinator; `group_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from group_transcript import Transcript
from transcripts import replay, scenarios

from skidway.groups.settings import GroupSettings


@pytest.mark.parametrize("path", scenarios("groups"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript(GroupSettings(**{name: int(value) for name, value in settings.items()})))  # type: ignore[arg-type]
