"""One share-partition at its leader: which records are delivered to whom, and what became of them.

Two layers. `durable` is what the store has, and changes only by `apply`. Above it are notes of this leader: leases, and
`live`, the state of every offset as a fetch sees it. What a client says of its records goes to the store first
(`next_write`); until the store has it they are `SETTLING`. If it is stored, the durable layer follows and the client
hears so; if not, the leases are what they were, or over if their time has come meanwhile.

Delivery counts of what is leased ride along with the next write, whoever causes it: after a fail-over most of them are
known. Nobody waits for them. Where keys have an order, leases are stored, and each begins when the store has it
(`Keep`): the next leader restores them (`resume`).
"""

from skidway.errors import InvalidRecordState, InvalidRequest, ProtocolError
from skidway.shares.acquiring import Acquired, Offered, Taking, Wanted
from skidway.shares.cells import Cells
from skidway.shares.contents import Contents
from skidway.shares.delays import Delays
from skidway.shares.durable import Durable
from skidway.shares.leases import Lease, Leases
from skidway.shares.letters import Letters
from skidway.shares.outbox import Outbox
from skidway.shares.records import Stored, Update
from skidway.shares.settling import Answer, Decided, Keep, Said, Writing, check_order
from skidway.shares.states import (
    ARCHIVING,
    AVAILABLE,
    DELAYED,
    LEASED,
    NEVER_MS,
    SETTLING,
    DeliveryRules,
    Order,
    Verb,
)
from skidway.shares.stored_leases import StoredLeases
from skidway.shares.tenants import Tenants


class Delivery(StoredLeases):
    __slots__ = (
        "_floor",
        "contents",
        "delays",
        "durable",
        "leases",
        "letters",
        "live",
        "outbox",
        "rules",
        "settling_offsets",
        "tenants",
    )

    def __init__(self, stored: Stored, rules: DeliveryRules, log_start: int = 0) -> None:
        self.rules = rules
        self.durable = durable = Durable(stored)
        self.live = Cells()
        self.leases = Leases()
        self.end_offset = durable.end_offset
        """The end of what was ever offered to anybody."""
        self.outbox = Outbox(durable.terms.number)
        self.letters = Letters(durable)
        self.contents = Contents(rules.order)
        self.tenants = Tenants()
        self.live.changed = None if rules.order is Order.NONE else []
        self.settling_offsets = 0
        """Leased offsets that their holders have spoken about, and the store has not answered."""
        self.delays = Delays()
        """Of what is available later."""
        self._floor = 0
        """Where the log begins."""
        self._search_from = durable.start_offset
        """Nothing below is available."""
        for batch in durable.batches():
            self.live.set_state(batch.first, batch.end, batch.state)
            self.live.set_count(batch.first, batch.end, batch.count)
        self.on_log_start(log_start)

    @property
    def deadline_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return min((at for at in (self.leases.deadline_ms, self.delays.deadline_ms) if at is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were loaded anew: no lease, nothing to be written."""
        return not self.leases and self.outbox.is_empty

    # --- acquiring ---

    def acquire(
        self, owner: str, offered: Offered, wanted: Wanted, now_ms: int, lock_ms: int | None = None
    ) -> list[Acquired]:
        """Lease what is available of it. What is not in the log any more, or not for readers, is archived.

        Nothing, if it is all of noisy tenants, and something is available before it."""
        self.contents.refresh(self)
        if self.rules.fair:
            self.tenants.refresh(self)
        taking = Taking(wanted, self.room)
        position = max(offered.from_offset, self.start_offset)
        taking.left_over = self.tenants.left_over(self, offered, taking)
        if taking.left_over is None and self.tenants.passes and not self.is_first(position):
            taking.left_over = 0
        for span in offered.spans:
            if taking.has_enough:
                break
            self._archive(position, min(span.first, self.ceiling))
            if span.first >= self.ceiling:
                break
            position, end = max(position, span.first), min(span.end, self.ceiling)
            if not span.deliverable:
                self._archive(position, end)
            elif not self._take(taking, position, end):
                break
            taking.end_of_batch()
            position = max(position, end)
        lasts_ms = self.rules.lock_ms if lock_ms is None else lock_ms
        deadline_ms = NEVER_MS if self.rules.keeps_leases else now_ms + lasts_ms
        keep = Keep(taking.ranges) if self.rules.keeps_leases and taking.ranges else None
        if keep is not None:
            self.outbox.keeps.append(keep)
        for each in taking.ranges:
            self.live.set_state(each.first, each.end, LEASED)
            self.live.set_count(each.first, each.end, each.count)
            lease = Lease(owner, each.first, each.end, each.count, deadline_ms, lasts_ms)
            lease.keep = keep
            self.leases.add(lease)
            self.outbox.count(each.first, each.end, each.count)
            self.mark(each.first, each.end)
            self.end_offset = max(self.end_offset, each.end)
            if self.live.changed is not None and self.rules.fair:
                self.tenants.acquired(each.first, each.end)
        if taking.ranges and self.tenants.noisy:
            self.tenants.took(passed=taking.left_over is not None)
        return taking.ranges

    # --- settling ---

    def settle(self, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: int | None = None) -> None:
        """All of it or nothing. `answer` gets None when it is stored, or why it did not happen; perhaps at once.

        InvalidRequest: the ranges are out of order, or reach past what was delivered. InvalidRecordState: something of
        it is not leased to the owner. What lies below the start offset is settled anyhow."""
        self.on_time(now_ms)
        try:
            check_order(said)
            start = self.start_offset
            words = [word for word in said if word.end > start]
            for word in words:
                self._check_held(owner, max(word.first, start), word.end)
        except ProtocolError as error:
            answer(error)
            return
        deadline_ms = now_ms + (self.rules.lock_ms if lock_ms is None else lock_ms)
        parts: list[Decided] = []
        stores = False
        for word in words:
            if word.verb is Verb.RENEW:
                stores |= self.renew(word.first, word.end, deadline_ms)
                continue
            for lease in self.leases.carve(max(word.first, start), word.end):
                parts.append(self._decide(lease, word.verb, word.delay_ms))
        if parts or stores:
            self.outbox.settle(answer, parts)
        else:
            answer(None)

    def _check_held(self, owner: str, first: int, end: int) -> None:
        if end > self.end_offset:
            raise InvalidRequest(f"nothing at {end - 1} was delivered, the end is {self.end_offset}")
        first = self.leases.held_until(owner, first, end)
        if first < end:
            raise InvalidRecordState(f"offset {first} is not held by {owner}")

    def _decide(self, lease: Lease, verb: Verb, delay_ms: int, reason: str = "") -> Decided:
        self.live.set_state(lease.first, lease.end, SETTLING)
        self.mark(lease.first, lease.end)
        self.end_offset = max(self.end_offset, lease.end)
        self.settling_offsets += lease.end - lease.first
        state = self.rules.outcome(verb, lease.count)
        self.letters.note(lease.first, lease.end, lease.count, state, verb, reason)
        return Decided(lease, state, delay_ms)

    def speak(self, lease: Lease, verb: Verb, delay_ms: int, answer: Answer, reason: str = "") -> None:
        """A word about a lease that was taken out of `leases`. `reason`: of a rejection, for its letter."""
        self.outbox.settle(answer, [self._decide(lease, verb, delay_ms, reason)])

    # --- what happens without anybody asking ---

    def on_time(self, now_ms: int) -> bool:
        """Leases end, delays are over. Whether something is available that was not."""
        freed = False
        for lease in self.leases.take_due(now_ms):
            freed |= self.give_back(lease)
        for first, end in self.delays.take_due(now_ms):
            freed |= self._end_delay(first, end)
        return freed

    def release_owner(self, owner: str) -> bool:
        """Its session is over. Whether something is available that was not."""
        self.outbox.end_leases_of(owner)
        freed = False
        for lease in self.leases.of_owner(owner):
            self.leases.end(lease)
            freed |= self.give_back(lease)
        return freed

    def on_log_start(self, offset: int) -> None:
        """The log begins here now: what lies below is gone, and nobody has to settle it."""
        if offset <= self.start_offset:
            return
        self.leases.carve(self.start_offset, offset)
        self._floor = offset
        self.end_offset = max(self.end_offset, offset)
        self.outbox.eager = True
        self.outbox.drop_below(offset)
        self.live.drop_below(offset)
        self.delays.drop_below(offset)
        self.contents.on_log_start(offset)

    def letter_written(self, first: int, end: int) -> None:
        """The letters of dead records are stored for good, or there will be none."""
        self._archive(max(first, self.start_offset), end, ARCHIVING)

    def give_back(self, lease: Lease) -> bool:
        """A lease that is over, without a word about its offsets."""
        if lease.count >= self.rules.count_limit:
            self._do(lease.first, lease.end, self.rules.dead, lease.count)
            return False
        self.letters.note(lease.first, lease.end, lease.count, AVAILABLE)
        self.free(lease.first, lease.end)
        self.outbox.count(lease.first, lease.end, lease.count)
        self.mark(lease.first, lease.end)
        self.outbox.eager = True
        return True

    # --- the store ---

    def next_write(self, now_ms: int, wall_ms: int) -> Update | None:
        """What the store should have next; None when there is nothing, or the last one is not answered yet."""
        return self.outbox.next_write(self, self._floor, self.letters, now_ms, wall_ms)

    def on_written(self, now_ms: int) -> bool:
        """The store has it. Whether something is available that was not."""
        writing = self._answered()
        self.durable.apply(writing.update)
        self._search_from = max(self._search_from, self.start_offset)
        freed = False
        for chore in writing.chores:
            self._settled(chore.first, chore.end, chore.state)
        for settlement in writing.settlements:
            for part in settlement.parts:
                freed |= self._decided(part, now_ms)
        self.live.drop_below(self.start_offset)
        self.delays.drop_below(self.start_offset)
        for keep in writing.keeps:
            keep.acquired = self._begin(keep, now_ms)
        for settlement in writing.settlements:
            settlement.answer(None)
        for keep in writing.keeps:
            keep.tell(None)
        self.outbox.hear_again(now_ms)
        return freed

    def on_failed(self, error: ProtocolError, now_ms: int) -> bool:
        """The store does not have it. Whether something is available that was not."""
        writing = self._answered()
        self.outbox.put_back(writing, self._floor)
        freed = False
        for settlement in writing.settlements:
            for part in settlement.parts:
                freed |= self._restore(part.lease, now_ms)
        for keep in writing.keeps:
            freed |= self.uncount(keep.acquired, keep)
        for settlement in writing.settlements:
            settlement.answer(error)
        for keep in writing.keeps:
            keep.tell(error)
        self.outbox.hear_again(now_ms)
        return freed

    def give_up(self, error: ProtocolError) -> None:
        """Another leader, or another state: what was not stored did not happen."""
        for answer in self.outbox.take_unanswered():
            answer(error)

    def _answered(self) -> Writing:
        writing = self.outbox.answered()
        self.settling_offsets -= sum(
            part.lease.end - part.lease.first for settlement in writing.settlements for part in settlement.parts
        )
        return writing

    def _decided(self, part: Decided, now_ms: int) -> bool:
        lease = part.lease
        if part.state != AVAILABLE:
            self._settled(lease.first, lease.end, part.state)
            return False
        if part.delay_ms <= 0:
            return self._settled(lease.first, lease.end, AVAILABLE)
        if self._settled(lease.first, lease.end, DELAYED):
            self.delays.add(now_ms + part.delay_ms, lease.first, lease.end)
        return False

    def _settled(self, first: int, end: int, state: int) -> bool:
        if self.live.changed is not None:
            self.live.changed.append((first, end))
        first = max(first, self.start_offset)
        if first >= end:
            return False
        self.live.set_state(first, end, state)
        if state == AVAILABLE:
            self._search_from = min(self._search_from, first)
        return True

    def _restore(self, lease: Lease, now_ms: int) -> bool:
        if lease.end <= self.start_offset:
            return False
        again = lease.part(max(lease.first, self.start_offset), lease.end)
        if again.deadline_ms >= NEVER_MS:  # its holder was never told of it
            again.deadline_ms = now_ms + again.lasts_ms
        if again.deadline_ms <= now_ms:
            return self.give_back(again)
        self.live.set_state(again.first, again.end, LEASED)
        self.leases.add(again)
        self.mark(again.first, again.end)
        self.outbox.count(again.first, again.end, again.count)
        return False
