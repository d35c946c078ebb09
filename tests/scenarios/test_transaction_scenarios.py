"""Transcripts of a transaction coordinator; `transaction_transcript` says what the commands mean."""

from pathlib import Path

import pytest
from transaction_transcript import Transcript
from transcripts import replay, scenarios

from skidway.transactions.settings import TransactionSettings


@pytest.mark.parametrize("path", scenarios("transactions"), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    replay(path, lambda settings: Transcript(TransactionSettings(**{key: int(settings[key]) for key in settings})))
