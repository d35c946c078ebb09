"""Terms of leases and delays <-> the tagged field that carries them, in records and between nodes.

Kafka's records and requests have no place for them: the field has number 1001, and others pass over it.
"""

from collections.abc import Sequence

from skidway.shares.terms import NO_TERMS, Term, TermNotes
from skidway.wire.schema import share_records as wire


def to_wire(notes: TermNotes) -> list[wire.TermNotes]:
    if notes.number == 0:
        return []
    terms = [
        wire.Term(each.first, each.end - 1, each.kind, each.count, each.until_ms, each.lasts_ms, each.owner)
        for each in notes.terms
    ]
    return [wire.TermNotes(notes.number, terms)]


def from_wire(found: Sequence[wire.TermNotes]) -> TermNotes:
    if not found:
        return NO_TERMS
    told = found[-1]
    terms = [
        Term(
            each.first_offset,
            each.last_offset + 1,
            each.kind,
            each.delivery_count,
            each.until,
            each.lasts,
            each.owner,
        )
        for each in told.terms
    ]
    return TermNotes(told.number, terms)
