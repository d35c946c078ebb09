"""What is stored of a share-partition: its whole state, and a change of it.

As in Kafka's ShareSnapshot and ShareUpdate, with exclusive ends. Merging is commutative where a late change meets a
newer one: of two words about an offset the one with the higher delivery count counts, then the higher state.
"""

from msgspec import Struct, field

from skidway.shares.letter_notes import NO_NOTES, LetterNotes
from skidway.shares.terms import NO_TERMS, TermNotes

UNRESOLVED = -1
"""A start offset that nobody has looked up yet."""
UNKNOWN_COUNT = -1


class StateBatch(Struct):
    first: int
    end: int
    state: int
    count: int


class Stored(Struct):
    """What the store says when a leader asks."""

    state_epoch: int
    start_offset: int
    batches: list[StateBatch] = field(default_factory=list)
    letters: LetterNotes = NO_NOTES
    terms: TermNotes = NO_TERMS


class Update(Struct):
    start_offset: int
    """All below is settled, or gone."""
    complete_count: int
    """Offsets above it that are settled already."""
    batches: list[StateBatch] = field(default_factory=list)
    letters: LetterNotes | None = None
    """None: as before."""
    terms: TermNotes | None = None
    """What has changed of them."""


def joined(batches: list[StateBatch]) -> list[StateBatch]:
    """Sorted, neighbours of one kind as one. They must not overlap."""
    found: list[StateBatch] = []
    for batch in sorted(batches, key=lambda each: each.first):
        last = found[-1] if found else None
        assert last is None or last.end <= batch.first, f"{last} and {batch} overlap"
        if last and last.end == batch.first and (last.state, last.count) == (batch.state, batch.count):
            last.end = batch.end
        else:
            found.append(StateBatch(batch.first, batch.end, batch.state, batch.count))
    return found
