"""Transcripts of a coordinator of schedules; `schedule_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from schedule_transcript import Transcript
from transcripts import replay, scenarios

from skidway.schedules.settings import ScheduleSettings


@pytest.mark.parametrize("path", scenarios("schedules"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript(ScheduleSettings(**{key: int(settings[key]) for key in settings})))
