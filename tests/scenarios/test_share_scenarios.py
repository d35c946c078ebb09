"""Transcripts of a share-partition; `share_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from share_transcript import Transcript
from transcripts import replay, scenarios


@pytest.mark.parametrize("path", scenarios("shares"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, Transcript)
