"""Transcripts of the fetcher of a follower; `fetcher_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from fetcher_transcript import Transcript
from transcripts import replay, scenarios


@pytest.mark.parametrize("path", scenarios("fetcher"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript())
