"""Transcripts of the metadata quorum; `quorum_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from quorum_transcript import Transcript
from transcripts import replay, scenarios


@pytest.mark.parametrize("path", scenarios("quorum"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript())
