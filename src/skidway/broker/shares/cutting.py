"""What is stored of a share-partition, against the log that it is about.

Nobody was ever delivered what lies behind the end of the log. Where the store says something of it all the same, the
log was cut by an unclean election, or a stranger has written to the store. New records will have these offsets: they
would be taken for settled, and a start offset far away would keep a queue from ever delivering again.
"""

from __future__ import annotations

from msgspec.structs import replace

from skidway.shares.letter_notes import NO_NOTES, LetterNotes
from skidway.shares.records import StateBatch, Stored
from skidway.shares.terms import NO_TERMS, TermNotes

FIRST_NUMBER = 1


def reaches_behind(stored: Stored, log_end: int) -> bool:
    ends = [stored.start_offset, *(batch.end for batch in stored.batches), *(term.end for term in stored.terms.terms)]
    return max(ends) > log_end


def without_the_rest(stored: Stored, log_end: int, state_epoch: int) -> Stored:
    """As far as the log goes, for a new state epoch. Plans of letters that reach behind it are forgotten."""
    batches = [
        StateBatch(batch.first, min(batch.end, log_end), batch.state, batch.count)
        for batch in stored.batches
        if batch.first < log_end
    ]
    plan = stored.letters.plan
    plan = plan if plan is not None and plan.end <= log_end else None
    deaths = tuple(death for death in stored.letters.deaths if death.end <= log_end)
    terms = [replace(term, end=min(term.end, log_end)) for term in stored.terms.terms if term.first < log_end]
    # Numbers begin anew with the state epoch.
    letters = LetterNotes(FIRST_NUMBER, plan, deaths) if plan is not None or deaths else NO_NOTES
    notes = TermNotes(FIRST_NUMBER, terms) if terms else NO_TERMS
    return Stored(state_epoch, min(stored.start_offset, log_end), batches, letters, notes)
