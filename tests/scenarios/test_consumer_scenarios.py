"""Transcripts of groups of the consumer protocol (KIP-848); `consumer_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from consumer_transcript import begin
from transcripts import replay, scenarios


@pytest.mark.parametrize("path", scenarios("consumers"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, begin)
