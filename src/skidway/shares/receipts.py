"""Settling by receipt: a holder is known by an offset and the number of the delivery, not by a session.

For doors without sessions (queues). One word is about one offset, and is answered by itself. Whether a receipt is
genuine is for the door to know; here it is only compared with what this leader knows.

In a standard queue a receipt is good until the record is settled: who has worked longer than its lease may still accept
the record, also when somebody else holds it by then, and after a fail-over that has lost the lease. Whoever has the
record only loses it by an acceptance: a late holder cannot release, reject or extend what somebody else holds. Under
`receipts_expire` (FIFO queues) a receipt ends with its lease.

A word about a record that is on its way to the store waits until the store has answered, and is heard then.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from skidway.errors import InvalidRecordState, InvalidRequest
from skidway.shares.leases import Lease
from skidway.shares.states import ARCHIVING, AVAILABLE, COUNT_MAX, LEASED, LOCK_MS_MAX, SETTLING, TERMINAL, Verb

if TYPE_CHECKING:
    from skidway.shares.acquiring import Acquired
    from skidway.shares.delivery import Delivery
    from skidway.shares.settling import Answer


class Standing(IntEnum):
    """What has become of a delivery."""

    HELD = 0
    """Its lease goes on."""
    OVER = 1
    """Its lease has ended, and nobody has the record."""
    TAKEN = 2
    """Somebody has the record by another delivery."""
    SETTLING = 3
    """What becomes of the record is on its way to the store."""
    DONE = 4
    """The record is settled, dead or gone."""


class Receipts:
    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def standing(self, offset: int, count: int) -> Standing:
        delivery = self._delivery
        state = delivery.live.state_at(offset)
        if offset < delivery.start_offset or state in TERMINAL or state == ARCHIVING:
            return Standing.DONE
        if state == LEASED:
            (lease,) = delivery.leases.within(offset, offset + 1)
            return Standing.HELD if lease.count == count else Standing.TAKEN
        return Standing.SETTLING if state == SETTLING else Standing.OVER

    def settle(
        self,
        offset: int,
        count: int,
        verb: Verb,
        now_ms: int,
        answer: Answer,
        delay_ms: int = 0,
        reason: str = "",
    ) -> None:
        """Accept, release or reject. `answer` gets None when it is stored, or why it did not happen; perhaps at once.

        InvalidRecordState: somebody else has the record, it is settled (unless it is to be settled again), or the
        receipt has expired. InvalidRequest: there is no such receipt."""
        delivery = self._delivery
        wrong = self._impossible(offset, count)
        if wrong is None and delay_ms > LOCK_MS_MAX:
            wrong = InvalidRequest(f"a delay of {delay_ms} ms: {LOCK_MS_MAX} are the most")
        if wrong is not None:
            answer(wrong)
            return
        delivery.on_time(now_ms)
        standing = self.standing(offset, count)
        if standing is Standing.SETTLING:
            again = partial(self._settle_again, offset, count, verb, delay_ms, reason, answer)
            delivery.outbox.again.append((again, answer))
            return
        if standing is Standing.DONE and verb is not Verb.RELEASE:
            answer(None)
            return
        if (refusal := self._refusal(offset, count, verb, standing)) is not None:
            answer(refusal)
            return
        delivery.speak(self._claim(offset, count, now_ms), verb, delay_ms, answer, reason)

    def accept_held(self, first: int, end: int, count: int, now_ms: int, answer: Answer) -> bool:
        """Accept a range that is with one holder, as `settle` would each of it. False: it is not, and nothing was
        done."""
        delivery = self._delivery
        delivery.on_time(now_ms)
        held = delivery.leases.within(first, end)
        if len(held) != 1 or held[0].count != count or not held[0].first <= first < end <= held[0].end:
            return False
        for lease in delivery.leases.carve(first, end):
            delivery.speak(lease, Verb.ACCEPT, 0, answer)
        return True

    def change(self, owner: str, offset: int, count: int, lock_ms: int, now_ms: int, answer: Answer) -> None:
        """The lease ends so long from now; 0: at once, and the record is available. Nothing is stored, unless
        leases are.

        What is over and nobody has is leased again, unless receipts expire."""
        delivery = self._delivery
        wrong = self._impossible(offset, count)
        if wrong is None and not 0 <= lock_ms <= LOCK_MS_MAX:
            wrong = InvalidRequest(f"a lease of {lock_ms} ms: it may have 0 to {LOCK_MS_MAX}")
        if wrong is not None:
            answer(wrong)
            return
        delivery.on_time(now_ms)
        delivery.contents.refresh(delivery)
        standing = self.standing(offset, count)
        if standing is Standing.SETTLING:
            again = partial(self._change_again, owner, offset, count, lock_ms, answer)
            delivery.outbox.again.append((again, answer))
            return
        refusal = self._refusal(offset, count, Verb.RENEW, standing)
        if refusal is None and standing is Standing.HELD:
            if not lock_ms:
                self._end(offset)
            elif delivery.renew(offset, offset + 1, now_ms + lock_ms):
                delivery.outbox.settle(answer, [])
                return
        elif refusal is None and lock_ms:
            if delivery.held_offsets < delivery.rules.leases_max:
                self._lease_again(Lease(owner, offset, offset + 1, count, now_ms + lock_ms))
            else:
                refusal = InvalidRecordState(f"{delivery.held_offsets} messages are in flight, as many as may be")
        answer(refusal)

    def untake(self, acquired: Iterable[Acquired]) -> bool:
        """A delivery that nobody was told of did not happen, and does not count. Whether something is available that
        was not."""
        return self._delivery.uncount(acquired)

    # --- what a receipt may do ---

    def _impossible(self, offset: int, count: int) -> InvalidRequest | None:
        if offset < 0 or not 1 <= count <= COUNT_MAX:
            return InvalidRequest(f"the message at offset {offset} was never received {count} times")
        delivery = self._delivery
        if offset >= delivery.start_offset + delivery.rules.span_max:
            return InvalidRequest(f"the message at offset {offset} was never received")
        return None

    def _refusal(self, offset: int, count: int, verb: Verb, standing: Standing) -> InvalidRecordState | None:
        delivery = self._delivery
        if standing is Standing.HELD:
            return None
        if standing is Standing.DONE:
            return InvalidRecordState("the message is done already: it was deleted, or is among the dead letters")
        if delivery.rules.receipts_expire:
            return InvalidRecordState("the receipt has expired: the message is not with this receiver any more")
        if verb is Verb.ACCEPT:
            return None
        if standing is Standing.TAKEN or delivery.live.count_at(offset) > count:
            return InvalidRecordState("the message was received again since: use the newer receipt")
        if verb is Verb.RENEW and delivery.live.state_at(offset) != AVAILABLE:
            return InvalidRecordState("the message is delayed, or waits for one before it in its group")
        return None

    def _claim(self, offset: int, count: int, now_ms: int) -> Lease:
        """The lease that the word is about; one that is over already if there is none."""
        delivery = self._delivery
        for lease in delivery.leases.carve(offset, offset + 1):
            return lease
        delivery.delays.drop(offset, offset + 1)
        # This leader may know of fewer deliveries than the one before it.
        known = max(count, delivery.live.count_at(offset))
        delivery.live.set_count(offset, offset + 1, known)
        return Lease("", offset, offset + 1, known, now_ms)

    def _end(self, offset: int) -> None:
        for lease in self._delivery.leases.carve(offset, offset + 1):
            self._delivery.give_back(lease)

    def _lease_again(self, lease: Lease) -> None:
        """A delivery that was over goes on."""
        delivery = self._delivery
        delivery.live.set_state(lease.first, lease.end, LEASED)
        delivery.live.set_count(lease.first, lease.end, lease.count)
        delivery.leases.add(lease)
        delivery.mark(lease.first, lease.end)
        delivery.outbox.count(lease.first, lease.end, lease.count)
        delivery.end_offset = max(delivery.end_offset, lease.end)

    def _settle_again(
        self, offset: int, count: int, verb: Verb, delay_ms: int, reason: str, answer: Answer, now_ms: int
    ) -> None:
        self.settle(offset, count, verb, now_ms, answer, delay_ms, reason)

    def _change_again(self, owner: str, offset: int, count: int, lock_ms: int, answer: Answer, now_ms: int) -> None:
        self.change(owner, offset, count, lock_ms, now_ms, answer)
