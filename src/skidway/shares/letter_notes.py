"""What is stored about the dead letters of a share-partition, beside the states of its records.

A batch of letters has a name before it is produced: the id of a producer and a sequence number. Both are stored with
the offsets that the letters are of.
"""

from msgspec import Struct

from skidway.limits import INT32_MAX
from skidway.shares.states import Cause

UNKNOWN_MS = -1
REASON_LENGTH_MAX = 250
"""Characters of what a client said; they are stored with every write until the letter is written."""
LETTERS_MAX = 500
"""In one batch of them."""
DEATHS_MAX = 500
"""Ranges of dead offsets whose causes are stored."""


class Plan(Struct, frozen=True):
    """Letters that are produced next, or were produced last."""

    producer_id: int
    sequence: int
    """Of the first letter."""
    first: int
    end: int
    """There is one letter for each offset between."""
    topic_id: bytes
    partition: int
    """Where they go, whatever the group's settings say meanwhile."""

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.end - self.first) & INT32_MAX


class Death(Struct, frozen=True):
    """How the records of a range died."""

    first: int
    end: int
    cause: Cause
    failed_first_ms: int
    failed_last_ms: int
    """Wall time; UNKNOWN_MS: the leader that knew it is gone."""
    reason: str = ""
    """What the client said that rejected it."""


class LetterNotes(Struct, frozen=True):
    """What is stored. Of two the one with the higher number is newer."""

    number: int = 0
    plan: Plan | None = None
    deaths: tuple[Death, ...] = ()


NO_NOTES = LetterNotes()


def newer(one: LetterNotes, other: LetterNotes) -> LetterNotes:
    return other if other.number > one.number else one
