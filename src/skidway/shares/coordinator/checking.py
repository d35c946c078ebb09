"""What a leader may have stored: everything of a write is checked before any of it is kept.

A write that passes can be loaded by any leader at a bounded price: what it speaks of lies in one window, in order, with
counts and times that a delivery can have. What no leader would write is INVALID_REQUEST, what would be too much
POLICY_VIOLATION.

Notes about letters and terms are numbered by the leader that writes them. A write that is sent twice says what is
stored already. One whose number is used up comes from another life of the share-partition at the same leader, or late:
it is FENCED_STATE_EPOCH, and who still waits for it has to read again. To answer it and to keep what was there would
lose leases, and letters.
"""

from __future__ import annotations

from collections.abc import Iterable

from skidway.errors import FencedStateEpoch, InvalidRequest, PolicyViolation
from skidway.limits import INT64_MAX, SHARE_SPAN_MAX
from skidway.shares.coordinator import batches as state_batches
from skidway.shares.coordinator.operations import Initialize, Write
from skidway.shares.coordinator.state import NO_COUNT, NO_OFFSET, Snapshot
from skidway.shares.letter_notes import DEATHS_MAX, LETTERS_MAX, REASON_LENGTH_MAX, UNKNOWN_MS, LetterNotes, Plan
from skidway.shares.queue_groups import topic_of
from skidway.shares.states import AVAILABLE, COUNT_MAX, DELAYED, LEASED, LOCK_MS_MAX
from skidway.shares.terms import OWNER_LENGTH_MAX, TERMS_STORED_MAX, Term, TermNotes, changed

START_OFFSET_MAX = INT64_MAX - SHARE_SPAN_MAX
NUMBERS_AHEAD_MAX = 2**32
"""A leader counts its notes one by one, also those of writes that failed: it is never so far ahead."""
TERMS_IN_WRITE_MAX = 2 * TERMS_STORED_MAX
"""Those that end are named, too."""
TERM_KINDS = (AVAILABLE, LEASED, DELAYED)


def check_initialize(asked: Initialize, before: Snapshot | None) -> None:
    if not NO_OFFSET <= asked.start_offset <= START_OFFSET_MAX or asked.state_epoch < 0:
        raise InvalidRequest(f"start offset {asked.start_offset} in state epoch {asked.state_epoch}")
    next_epoch = 0 if before is None else before.state_epoch + 1
    if asked.state_epoch > next_epoch and topic_of(asked.key.group_id) is not None:
        # No group counts them: its leaders do, one by one. Nobody could follow somebody who has used the last one.
        raise InvalidRequest(f"state epoch {asked.state_epoch} of a queue, where {next_epoch} is the next")


def check_write(asked: Write, before: Snapshot, batches_max: int) -> None:
    if not NO_OFFSET <= asked.start_offset <= START_OFFSET_MAX:
        raise InvalidRequest(f"start offset {asked.start_offset}")
    if not NO_COUNT <= asked.complete_count <= SHARE_SPAN_MAX:
        raise InvalidRequest(f"{asked.complete_count} records done above the start offset")
    if len(asked.batches) + len(before.batches) > batches_max:
        raise PolicyViolation(f"more than {batches_max} batches of one share-partition")
    start_offset = max(asked.start_offset, before.start_offset)
    window_end = max(start_offset, 0) + SHARE_SPAN_MAX
    state_batches.check(asked.batches, window_end)
    _check_letters(before.letters, asked.letters, window_end)
    _check_terms(before.terms, asked.terms, start_offset, window_end)


def _check_letters(before: LetterNotes, asked: LetterNotes, window_end: int) -> None:
    if len(asked.deaths) > DEATHS_MAX:
        raise InvalidRequest(f"{len(asked.deaths)} deaths in one write: {DEATHS_MAX} are noted at most")
    _check_ranges("a death", ((death.first, death.end) for death in asked.deaths), window_end)
    for death in asked.deaths:
        if not min(death.failed_first_ms, death.failed_last_ms) >= UNKNOWN_MS:
            raise InvalidRequest(f"a death at {death.failed_first_ms} and {death.failed_last_ms}")
        if len(death.reason) > REASON_LENGTH_MAX:
            raise InvalidRequest(f"a reason of {len(death.reason)} characters: {REASON_LENGTH_MAX} are the most")
    if asked.plan is not None:
        _check_plan(asked.plan, window_end)
    if asked.number == 0 and (asked.plan is not None or asked.deaths):
        raise InvalidRequest("notes about letters have a number above 0")
    _check_number("letters", asked.number, before.number, asked == before)


def _check_plan(plan: Plan, window_end: int) -> None:
    if min(plan.producer_id, plan.sequence, plan.partition) < 0 or plan.end - plan.first > LETTERS_MAX:
        raise InvalidRequest(
            f"a plan of {plan.end - plan.first} letters in partition {plan.partition}, by producer {plan.producer_id}"
            f" from sequence {plan.sequence} on: it has {LETTERS_MAX} at most, and nothing below 0"
        )
    _check_ranges("a plan of letters", [(plan.first, plan.end)], window_end)


def _check_terms(before: TermNotes, asked: TermNotes, start_offset: int, window_end: int) -> None:
    if len(asked.terms) > TERMS_IN_WRITE_MAX:
        raise PolicyViolation(f"{len(asked.terms)} leases and delays in one write: {TERMS_IN_WRITE_MAX} are the most")
    _check_ranges("a term", ((term.first, term.end) for term in asked.terms), window_end)
    for term in asked.terms:
        _check_term(term)
    if asked.number == 0 and asked.terms:
        raise InvalidRequest("leases and delays have a number above 0")
    if not asked.number:
        return
    after = changed(TermNotes(0, before.terms), TermNotes(1, asked.terms), start_offset).terms
    stored = changed(before, TermNotes(), start_offset).terms if asked.number == before.number else ()
    _check_number("leases and delays", asked.number, before.number, list(after) == list(stored))
    if len(after) > max(TERMS_STORED_MAX, len(before.terms)):
        raise PolicyViolation(f"more than {TERMS_STORED_MAX} leases and delays of one share-partition")


def _check_term(term: Term) -> None:
    if term.kind not in TERM_KINDS or not 0 <= term.count <= COUNT_MAX:
        raise InvalidRequest(f"a term of kind {term.kind} for delivery {term.count}")
    if term.until_ms < 0 or not 0 <= term.lasts_ms <= LOCK_MS_MAX:
        raise InvalidRequest(f"a term of {term.lasts_ms} ms, until {term.until_ms}: {LOCK_MS_MAX} ms are the longest")
    if len(term.owner) > OWNER_LENGTH_MAX:
        raise InvalidRequest(f"a holder with a name of {len(term.owner)} characters: {OWNER_LENGTH_MAX} are the most")


def _check_ranges(noun: str, ranges: Iterable[tuple[int, int]], window_end: int) -> None:
    """They ascend without overlaps, and lie in the window or below."""
    end = 0
    for first, stop in ranges:
        if first < end or stop <= first or stop > window_end:
            raise InvalidRequest(
                f"{noun} from offset {first} to {stop - 1}, behind {end - 1}: ranges ascend, do not overlap, and end"
                f" below {window_end}"
            )
        end = stop


def _check_number(noun: str, number: int, stored: int, is_stored: bool) -> None:
    """`is_stored`: what comes with it changes nothing."""
    if number < 0 or number > stored + NUMBERS_AHEAD_MAX:
        raise InvalidRequest(f"{noun} with number {number}, where {stored} is stored")
    if number and (number < stored or (number == stored and not is_stored)):
        raise FencedStateEpoch(f"{noun} with number {number}, where {stored} is stored: read the state again")
