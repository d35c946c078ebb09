"""Transcripts of the leader of a partition; `leader_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from leader_transcript import Transcript
from transcripts import replay, scenarios


@pytest.mark.parametrize("path", scenarios("leader"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript())
