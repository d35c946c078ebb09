"""Transcripts of a share coordinator; `share_state_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from share_state_transcript import Transcript
from transcripts import replay, scenarios

from skidway.shares.coordinator.settings import ShareCoordinatorSettings


@pytest.mark.parametrize("path", scenarios("share_states"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript(ShareCoordinatorSettings(**{key: int(settings[key]) for key in settings})))
