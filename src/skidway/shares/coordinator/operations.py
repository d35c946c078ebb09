"""What a share coordinator can be asked, what it answers, and what it has done elsewhere.

Questions come in bunches (`Ask`): what several leaders and groups want of share-partitions in one partition of the
topic is decided, written and answered together. Each has a reply of its own, or a refusal.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from skidway.errors import ProtocolError
from skidway.runtime.replicated import Operation
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.state import NO_COUNT, NO_EPOCH, NO_OFFSET
from skidway.shares.letter_notes import NO_NOTES, LetterNotes
from skidway.shares.terms import NO_TERMS, TermNotes


class Initialize(Struct, frozen=True):
    """A group's coordinator wants it delivered from this offset on. In a state epoch that is known already nothing
    happens, so it may be asked again; in a new one everything before is forgotten."""

    key: ShareKey
    state_epoch: int
    start_offset: int = NO_OFFSET


class Read(Struct, frozen=True):
    """A leader begins. From then on the leaders before it are fenced."""

    key: ShareKey
    leader_epoch: int


class Write(Struct, frozen=True):
    """Of the leader that was the last one to read, in the state epoch that it read: anybody else is fenced."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int = NO_OFFSET
    complete_count: int = NO_COUNT
    batches: Sequence[StateBatch] = []
    letters: LetterNotes = NO_NOTES
    terms: TermNotes = NO_TERMS
    """What has changed."""


class Delete(Struct, frozen=True):
    """Also of what is not there."""

    key: ShareKey


class ReadSummary(Struct, frozen=True):
    """An admin asks, by way of the group's coordinator: nobody is fenced."""

    key: ShareKey
    leader_epoch: int = NO_EPOCH


Question: TypeAlias = Initialize | Read | Write | Delete | ReadSummary


class Done(Struct, frozen=True):
    """The reply to Initialize, Write and Delete."""


class State(Struct, frozen=True):
    """The reply to Read."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    letters: LetterNotes = NO_NOTES
    terms: TermNotes = NO_TERMS


class Summary(Struct, frozen=True):
    """The reply to ReadSummary."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int


Answer: TypeAlias = Done | State | Summary | ProtocolError
DONE = Done()
NOT_THERE = Summary(0, 0, NO_OFFSET, NO_COUNT)
"""What Kafka answers about a share-partition that nobody has initialised."""


class Ask(Operation[list[Answer]]):
    questions: Sequence[Question]


class TopicsChanged(Operation[None]):
    """Some came, changed or (those named) were deleted: what is kept for those is forgotten."""

    deleted: list[str]


class Tick(Operation[None]):
    pass


class Prune(Struct, frozen=True):
    """An effect: no record below this offset is needed any more."""

    offset: int
