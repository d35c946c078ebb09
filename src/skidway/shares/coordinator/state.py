"""The durable state of one share-partition, and how a record changes it.

A snapshot says everything; an update says what has changed since the last snapshot. Neither the start offset nor, for
one start offset, the number of records done behind it ever goes back: a write may come late, after a newer one.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from skidway.shares.coordinator.batches import StateBatch, merged
from skidway.shares.letter_notes import NO_NOTES, LetterNotes, newer
from skidway.shares.terms import NO_TERMS, TermNotes, changed

NO_EPOCH = -1
NO_OFFSET = -1
"""Of a write: unchanged. Of a state: not known yet where to start."""
NO_COUNT = -1
FIRST_SNAPSHOT = 0


class Snapshot(Struct, frozen=True):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    """Records at or above the start offset that are done; -1: nobody said."""
    created_ms: int
    written_ms: int
    """Both by the wall clock."""
    batches: Sequence[StateBatch] = []
    letters: LetterNotes = NO_NOTES
    terms: TermNotes = NO_TERMS


class Update(Struct, frozen=True):
    """What a write or the read of a new leader changes."""

    snapshot_epoch: int
    """Of the snapshot that it belongs to."""
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch] = []
    letters: LetterNotes = NO_NOTES
    """Those with the highest number count."""
    terms: TermNotes = NO_TERMS
    """What has changed."""


class ShareState(Struct, frozen=True):
    """As of the last record."""

    snapshot: Snapshot
    """What the last one would say if it were taken now."""
    updates: int = 0
    """Since the last snapshot."""


def after_snapshot(snapshot: Snapshot) -> ShareState:
    return ShareState(snapshot)


def after_update(state: ShareState, update: Update) -> ShareState:
    before = state.snapshot
    start_offset = max(before.start_offset, update.start_offset)
    snapshot = replace(
        before,
        leader_epoch=max(before.leader_epoch, update.leader_epoch),
        start_offset=start_offset,
        complete_count=complete_count_after(before, update.start_offset, update.complete_count),
        batches=merged(before.batches, update.batches, start_offset),
        letters=newer(before.letters, update.letters),
        terms=changed(before.terms, update.terms, start_offset),
    )
    return ShareState(snapshot, state.updates + 1)


def complete_count_after(before: Snapshot, start_offset: int, complete_count: int) -> int:
    """With the same start the number only grows; a new start has its own. What is said of an old start is late."""
    start_offset = before.start_offset if start_offset == NO_OFFSET else start_offset
    if start_offset > before.start_offset:
        return complete_count
    if start_offset < before.start_offset:
        return before.complete_count
    return max(before.complete_count, complete_count)
