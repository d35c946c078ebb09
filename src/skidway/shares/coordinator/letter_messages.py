"""Notes about dead letters <-> the tagged field that carries them, in records and between nodes.

Kafka's records and requests have no place for them: the field has number 1000, and others pass over it.
"""

from collections.abc import Sequence

from skidway.shares.letter_notes import NO_NOTES, Death, LetterNotes, Plan
from skidway.shares.states import Cause
from skidway.wire.schema import share_records as wire

NO_PRODUCER = -1


def to_wire(notes: LetterNotes) -> list[wire.LetterNotes]:
    if notes.number == 0:
        return []
    deaths = [
        wire.LetterDeath(
            each.first, each.end - 1, each.cause, each.failed_first_ms, each.failed_last_ms, each.reason or None
        )
        for each in notes.deaths
    ]
    plan = notes.plan
    if plan is None:
        return [wire.LetterNotes(notes.number, deaths=deaths)]
    last = plan.end - 1
    return [
        wire.LetterNotes(
            notes.number, plan.producer_id, plan.sequence, plan.first, last, plan.topic_id, plan.partition, deaths
        )
    ]


def from_wire(found: Sequence[wire.LetterNotes]) -> LetterNotes:
    if not found:
        return NO_NOTES
    told = found[-1]
    deaths = tuple(
        Death(
            each.first_offset,
            each.last_offset + 1,
            _cause(each.cause),
            each.failed_first,
            each.failed_last,
            each.reason or "",
        )
        for each in told.deaths
    )
    plan = Plan(
        told.producer_id,
        told.sequence,
        told.first_offset,
        told.last_offset + 1,
        bytes(told.topic_id),
        told.partition,
    )
    return LetterNotes(told.number, None if told.producer_id == NO_PRODUCER else plan, deaths)


def _cause(number: int) -> Cause:
    """A later version may know others."""
    return Cause.REJECTED if number == Cause.REJECTED else Cause.EXHAUSTED
