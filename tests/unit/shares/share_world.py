"""A share-partition with everything around it: a log, a store that may be slow, fail or fence, time, consumers.

`World` notes what consumers were told, and holds the laws of NOTES against it after every step: a broken law is an
AssertionError that begins with its name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skidway.errors import CoordinatorNotAvailable, FencedLeaderEpoch, InvalidRecordState, ProtocolError
from skidway.shares import delivery as machine
from skidway.shares import receipts
from skidway.shares.acquiring import Acquired, Offered, Span, Wanted
from skidway.shares.contents import Content
from skidway.shares.durable import Durable
from skidway.shares.records import StateBatch, Stored, Update
from skidway.shares.settling import Keep, Said
from skidway.shares.states import ACKNOWLEDGED, NEVER_MS, SETTLING, TERMINAL, DeliveryRules, Order, Verb

LONGEST_MS = 1_000
"""No lease and no delay is longer in a history."""
FAIR_BATCHES = 3
SETTLING_VERBS = (Verb.ACCEPT, Verb.REJECT, Verb.GAP)


class Store:
    """What is stored, by Kafka's rules: an older leader is refused, the start never goes back."""

    def __init__(self, start_offset: int, batches: list[StateBatch]) -> None:
        self.state = Durable(Stored(1, start_offset, batches))
        self.leader_epoch = 0

    def load(self, leader_epoch: int) -> Stored:
        self.leader_epoch = leader_epoch
        state = self.state
        return Stored(state.state_epoch, state.start_offset, state.batches(), state.letters, state.terms)

    def write(self, leader_epoch: int, update: Update) -> ProtocolError | None:
        if leader_epoch < self.leader_epoch:
            return FencedLeaderEpoch()
        try:
            self.state.apply(update)
        except AssertionError as wrong:
            raise AssertionError(f"L14: {wrong}") from wrong
        return None


@dataclass
class Held:
    """What a consumer was told: it has the record until then."""

    owner: str
    deadline_ms: int
    count: int
    spoken: bool = False
    """The consumer has said what is to become of it, and was not answered."""
    told_ms: int = 0
    """So long the consumer was told that it has it, where leases are stored."""

    def change(self, deadline_ms: int) -> None:
        """Who asks for less time may have less from then on."""
        self.deadline_ms = deadline_ms
        self.told_ms = min(self.told_ms, deadline_ms)


class World:
    def __init__(self, rules: DeliveryRules, start_offset: int = 0, batches: list[StateBatch] | None = None) -> None:
        """`batches`: what is stored already."""
        self.rules = rules
        self.now_ms = 0
        self.store = Store(start_offset, batches or [])
        self.leader_epoch = 1
        self.log: list[Span] = []
        self.log_start = start_offset
        self.log_end = start_offset
        self.contents: dict[int, Content] = {}
        """What records say themselves, if the group asks for it."""
        self.loaded_end = start_offset
        """Where the log ended when the leader began."""
        self.wall_ahead_ms = 10_000_000
        """Of the other clock. It may jump."""
        self.held: dict[int, Held] = {}
        self.unkept: dict[int, Held] = {}
        """What was leased, and nobody has heard of it: it is on its way to the store."""
        self.on_told: Callable[[str, Acquired], None] = lambda owner, acquired: None
        self.counts: dict[int, int] = {}
        """Deliveries that were seen since the leader began."""
        self.accepted = {at for batch in batches or [] for at in range(batch.first, batch.end)}
        self.named: set[int] = set()
        """Archived for a cause with a name: no record there, the log begins later, delivered as often as allowed."""
        self.highest_start = start_offset
        self.waiting: list[tuple[int, list[ProtocolError | None]]] = []
        """Words of receipts without an answer."""
        self.in_flight: list[tuple[machine.Delivery, int, Update]] = []
        self.delivery = self.load()
        self.receipts = receipts.Receipts(self.delivery)

    def load(self) -> machine.Delivery:
        delivery = machine.Delivery(self.store.load(self.leader_epoch), self.rules, self.log_start)
        delivery.resume(self.now_ms, self.wall_ms)
        return delivery

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    # --- the log ---

    def append(self, size: int, *, deliverable: bool = True, contents: Sequence[tuple[Any, ...]] = ()) -> None:
        """`contents`: key, when it is due, perhaps whose it is, of each."""
        for at, (key, due_ms, *whose) in enumerate(contents, self.log_end):
            self.contents[at] = Content(at, due_ms, key, *whose)
        self.log.append(Span(self.log_end, self.log_end + size, deliverable))
        if not deliverable:
            self.named |= set(range(self.log_end, self.log_end + size))
        self.log_end += size

    def compact(self, number: int) -> None:
        """A batch is gone. The last one stays, as in every log."""
        if len(self.log) > 1:
            gone = self.log.pop(number % (len(self.log) - 1))
            self.named |= set(range(gone.first, gone.end))

    def move_log_start(self, offset: int) -> None:
        offset = min(max(offset, self.log_start), self.log_end)
        self.log_start = offset
        self.log = [span for span in self.log if span.end > offset]
        self.named |= set(range(offset))
        self.held = {at: held for at, held in self.held.items() if at >= offset}
        self.unkept = {at: held for at, held in self.unkept.items() if at >= offset}
        self.delivery.on_log_start(offset)

    # --- consumers ---

    def acquire(self, owner: str, wanted: Wanted, lock_ms: int | None = None) -> list[Acquired]:
        self.pass_time(0)
        acquired: list[Acquired] = []
        for upto in self.looks():
            offset = self.delivery.next_offset(upto)
            if acquired or offset is None or offset >= self.log_end:
                break
            acquired = self._acquire(owner, Offered(offset, self.spans_from(offset)), wanted, lock_ms)
        self.pass_time(0)
        return acquired

    def looks(self) -> list[int | None]:
        """Where the log ends, for looks that pass over the records of noisy tenants."""
        return [self.log_end, None] if self.rules.fair else [None]

    def spans_from(self, offset: int) -> list[Span]:
        """A fair leader looks at few batches at a time."""
        spans = [span for span in self.log if span.end > offset]
        return spans[:FAIR_BATCHES] if self.rules.fair else spans

    def _acquire(self, owner: str, offered: Offered, wanted: Wanted, lock_ms: int | None) -> list[Acquired]:
        self._examine(offered.spans)
        before = {at: held for at, held in self.taken().items() if held.deadline_ms > self.now_ms or held.spoken}
        delivery = self.delivery
        acquired = delivery.acquire(owner, offered, wanted, self.now_ms, lock_ms)
        lasts_ms = self.rules.lock_ms if lock_ms is None else lock_ms
        keep = delivery.last_keep if acquired else None
        for each in acquired:
            for at in range(each.first, each.end):
                self._on_leased(at, each.count, owner)
                if keep is None:
                    self.held[at] = Held(owner, self.now_ms + lasts_ms, each.count)
                else:
                    self.unkept[at] = Held(owner, NEVER_MS, each.count)
                self._check_content(at, before)
            if keep is None:
                self.on_told(owner, each)
        if keep is not None:
            self._await(owner, keep, lasts_ms)
        return acquired

    def taken(self) -> dict[int, Held]:
        return {**self.unkept, **self.held}

    def _await(self, owner: str, keep: Keep, lasts_ms: int) -> None:
        """The consumer hears of its leases when they are stored, or never."""
        mine = {at: self.unkept[at] for each in keep.acquired for at in range(each.first, each.end)}
        delivery = self.delivery

        def known(error: ProtocolError | None) -> None:
            for at, waiting in mine.items():
                if self.unkept.get(at) is not waiting:
                    continue
                del self.unkept[at]
                if waiting.count >= self.rules.count_limit:
                    # The store may have heard of it, and takes it for the last one.
                    self.named.add(at)
                if error is not None and at >= delivery.start_offset:
                    self.counts[at] = delivery.live.count_at(at)
            for each in keep.acquired:
                for at in range(each.first, each.end):
                    waiting = mine[at]
                    if waiting.deadline_ms >= NEVER_MS:
                        waiting.deadline_ms = self.now_ms + lasts_ms
                    waiting.told_ms = waiting.deadline_ms
                    self.held[at] = waiting
                self.on_told(owner, each)

        keep.when_known(known)

    def _examine(self, spans: Sequence[Span]) -> None:
        """The host opens every batch that it has not looked into."""
        looked_to = self.delivery.contents.looked_to
        for span in spans:
            if span.end > looked_to and self.rules.opens_batches:
                found = [self.contents[at] for at in range(span.first, span.end) if at in self.contents]
                found = found if span.deliverable else []
                self.delivery.contents.examine(self.delivery, found, span.end, self.now_ms)

    def _check_content(self, at: int, before: dict[int, Held]) -> None:
        """`before`: what was held when the acquisition began."""
        content = self.contents.get(at)
        if content is None or not self.rules.opens_batches:
            return
        assert content.due_ms <= self.now_ms, f"L17: {at} is due at {content.due_ms}, and is delivered at {self.now_ms}"
        if content.key is None or self.rules.order is Order.NONE:
            return
        alike = [other for other, its in self.contents.items() if its.key == content.key]
        live = {other for span in self.log if span.deliverable for other in range(span.first, span.end)}
        live -= self.accepted | self.named | set(range(self.delivery.start_offset))
        skipped = [other for other in alike if other < at and other in live and other not in self.taken()]
        skipped = [other for other in skipped if self.delivery.live.state_at(other) not in (*TERMINAL, SETTLING)]
        assert not skipped, f"L15: {at} is delivered before {skipped}, which have the same key"
        together = [other for other in alike if other in before and (other < at or self.rules.order is Order.KEY)]
        # A leader that has not seen a record which compaction removed since does not know its key.
        together = [other for other in together if other >= self.loaded_end or self._is_in_log(other)]
        assert not together, f"L15: {at} is delivered while {together} are held, which have the same key"

    def _is_in_log(self, at: int) -> bool:
        return any(span.first <= at < span.end for span in self.log)

    def _on_leased(self, at: int, count: int, owner: str) -> None:
        assert at not in self.accepted, f"L1: {at} was settled, and is delivered again"
        assert at not in self.taken(), f"L3: {at} is held by {self.taken()[at]}, and goes to {owner}"
        before = self.counts.get(at)
        assert before is None or count == before + 1, f"L4: delivery {count} of {at} follows delivery {before}"
        assert count <= self.rules.count_limit, f"L4: delivery {count} of {at}"
        assert any(span.first <= at < span.end and span.deliverable for span in self.log), f"L2: no record at {at}"
        self.counts[at] = count

    def settle(self, owner: str, said: list[Said]) -> list[ProtocolError | None]:
        """What it answers, now or later."""
        self.pass_time(0)
        delivery, answers = self.delivery, list[ProtocolError | None]()
        held = self.taken()
        mine = {at for at, each in held.items() if each.owner == owner and not each.spoken}
        deadline_ms = self.now_ms + self.rules.lock_ms
        spoken = [(at, word) for word in said for at in range(word.first, word.end) if at >= delivery.start_offset]
        settling: list[Held] = []
        renewed = mine & {at for at, word in spoken if word.verb is Verb.RENEW}
        before = _leases(delivery)

        def answer(error: ProtocolError | None) -> None:
            answers.append(error)
            for each in settling:
                each.spoken = False
            if error is None:
                self._on_settled(spoken)
                for at in renewed:
                    held[at].told_ms = deadline_ms
            elif not isinstance(error, CoordinatorNotAvailable | FencedLeaderEpoch):
                assert _leases(delivery) == before, f"L7: {error} left a part behind"

        delivery.settle(owner, said, self.now_ms, answer)
        if not answers or answers[0] is None:
            assert len({at for at, _ in spoken}) == len(spoken), f"L7: {said} names an offset twice"
            for at in renewed:
                held[at].change(deadline_ms)
        if not answers:
            for at in mine & {at for at, word in spoken if word.verb is not Verb.RENEW}:
                held[at].spoken = True
                settling.append(held[at])
        if answers and answers[0] is None and self.delivery is delivery:
            strangers = [at for at, _ in spoken if at not in mine]
            assert not strangers, f"L3: {owner} settled {strangers}, which it does not hold"
        if answers and isinstance(answers[0], InvalidRecordState):
            assert len({at for at, _ in spoken}) != len(spoken) or any(at not in mine for at, _ in spoken), (
                f"L5: {owner} holds {sorted(mine)}, and may not settle {said}"
            )
        return answers

    def _on_settled(self, spoken: list[tuple[int, Said]]) -> None:
        stored = self.store.state
        for at, word in spoken:
            if word.verb is Verb.RENEW:
                continue
            held = self.held.pop(at, self.unkept.get(at))
            if at < stored.start_offset:
                if word.verb in SETTLING_VERBS:
                    self.accepted.add(at)
                elif held is not None and held.count >= self.rules.count_limit:
                    self.named.add(at)
                continue
            state = stored.cells.state_at(at)
            if word.verb in SETTLING_VERBS:
                fine = state in TERMINAL or (word.verb is Verb.REJECT and state == self.rules.dead)
                assert fine, f"L6: {at} is answered, and its state in the store is {state}"
                assert (state == ACKNOWLEDGED) == (word.verb is Verb.ACCEPT), f"L6: {at} is stored as {state}"
                self.accepted.add(at)
            elif held is not None and held.count >= self.rules.count_limit:
                assert state == self.rules.dead, f"L4: {at} was delivered {held.count} times, and is {state}"
                self.named.add(at)

    # --- by receipt ---

    def settle_receipt(self, at: int, count: int, verb: Verb, delay_ms: int = 0) -> list[ProtocolError | None]:
        self.pass_time(0)
        delivery, answers = self.delivery, list[ProtocolError | None]()
        holder = self.taken().get(at)
        by_holder = holder is not None and holder.count == count
        waits_behind = delivery.live.state_at(at) == SETTLING

        def answer(error: ProtocolError | None) -> None:
            answers.append(error)
            self.waiting = [each for each in self.waiting if each[1] is not answers]
            if at in self.taken():
                self.taken()[at].spoken = False
            if error is None and self.delivery is delivery:
                self._on_receipt_settled(at, verb)
            elif error is not None and not by_holder and count >= self.rules.count_limit:
                # The leader hears by the receipt that this was the last delivery.
                self.named.add(at)

        self.receipts.settle(at, count, verb, self.now_ms, answer, delay_ms)
        if not answers and not waits_behind:
            assert by_holder or not self.rules.receipts_expire, f"L16: {at} is settled, and receipt {count} has expired"
            stolen = not by_holder and holder is not None and verb is not Verb.ACCEPT
            assert not stolen, f"L16: {at} is {holder}, and receipt {count} ends it"
            if holder is not None:
                holder.spoken = True
        if count > self.counts.get(at, 0):
            # The leader learns of a delivery that it did not know.
            self.counts.pop(at, None)
        if not answers:
            self.waiting.append((at, answers))
        if answers and isinstance(answers[0], InvalidRecordState) and verb is Verb.ACCEPT:
            assert self.rules.receipts_expire, f"L16: {at} is not settled, and receipt {count} is refused"
        if answers and answers[0] is not None:
            assert not by_holder or not 0 <= at < delivery.start_offset + self.rules.span_max, f"L16: {at} is {holder}"
        return answers

    def _on_receipt_settled(self, at: int, verb: Verb) -> None:
        stored = self.store.state
        held = self.held.pop(at, None)
        done = at < max(stored.start_offset, self.log_start) or stored.cells.state_at(at) in TERMINAL
        if verb is not Verb.RELEASE:
            assert done, f"L6: {at} is answered, and its state in the store is {stored.cells.state_at(at)}"
            self.accepted.add(at)
        elif done:
            last = held is None or held.count >= self.rules.count_limit or at < self.log_start
            assert last, f"L4: {at} was delivered {held}, and is dead"
            self.named.add(at)

    def change(self, owner: str, at: int, count: int, lock_ms: int) -> list[ProtocolError | None]:
        self.pass_time(0)
        answers = list[ProtocolError | None]()
        delivery, holder, deadline_ms = self.delivery, self.taken().get(at), self.now_ms + lock_ms
        waits_behind = delivery.live.state_at(at) == SETTLING

        def answer(error: ProtocolError | None) -> None:
            answers.append(error)
            if self.rules.keeps_leases and lock_ms:
                if error is None and holder is not None and holder.count == count and not waits_behind:
                    holder.told_ms = deadline_ms
                return
            if error is not None or self.delivery is not delivery:
                return
            now = self.taken().get(at)
            if now is not None and now.deadline_ms <= self.now_ms:
                self._end({at})
                now = None
            assert now is None or now.count == count, f"L16: {at} is {now}, and receipt {count} changes it"
            if now is not None and lock_ms:
                now.deadline_ms = self.now_ms + lock_ms
            elif now is not None:
                self._end({at})
            elif lock_ms:
                self.held[at] = Held(owner, self.now_ms + lock_ms, count)
                self.counts[at] = count

        self.receipts.change(owner, at, count, lock_ms, self.now_ms, answer)
        if self.rules.keeps_leases and not answers and not waits_behind:
            assert holder is not None, f"L16: nobody holds {at}, and receipt {count} changes it"
            assert holder.count == count, f"L16: {at} is {holder}, and receipt {count} changes it"
            holder.change(deadline_ms)
        if answers and answers[0] is not None and holder is not None and not holder.spoken:
            assert holder.count != count or at < delivery.start_offset, f"L16: {at} is {holder}"
        return answers

    def untake(self, acquired: list[Acquired]) -> None:
        self.pass_time(0)
        self.receipts.untake(acquired)
        for each in acquired:
            for at in range(each.first, each.end):
                held = self.taken().get(at)
                if held is not None and held.count == each.count and not held.spoken:
                    self.held.pop(at, None)
                    self.unkept.pop(at, None)
                    self.counts[at] = each.count - 1
                    if each.count >= self.rules.count_limit:
                        # The store may have heard of it, and another leader takes it for the last one.
                        self.named.add(at)

    def leave(self, owner: str) -> None:
        self.delivery.release_owner(owner)
        self._end({at for at, held in self.taken().items() if held.owner == owner and not held.spoken})
        for held in self.taken().values():
            if held.owner == owner:
                held.deadline_ms = self.now_ms  # If the store does not take its word, nobody has it again.

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.delivery.on_time(self.now_ms)
        self._end({at for at, held in self.taken().items() if held.deadline_ms <= self.now_ms and not held.spoken})

    def _end(self, over: set[int]) -> None:
        for at in over:
            held = self.held if at in self.held else self.unkept
            if held.pop(at).count >= self.rules.count_limit:
                self.named.add(at)

    # --- the store ---

    def begin_write(self) -> None:
        update = self.delivery.next_write(self.now_ms, self.wall_ms)
        if update is not None:
            self.in_flight.append((self.delivery, self.leader_epoch, update))

    def end_write(self, *, lost: bool = False) -> None:
        """The oldest write arrives, or does not."""
        if not self.in_flight:
            return
        writer, epoch, update = self.in_flight.pop(0)
        error = CoordinatorNotAvailable() if lost else self.store.write(epoch, update)
        if epoch < self.leader_epoch and error is None:
            raise AssertionError("L9: an older leader wrote")
        if writer is not self.delivery:
            return
        if error is None:
            writer.on_written(self.now_ms)
        else:
            writer.on_failed(error, self.now_ms)
        for at, _ in self.waiting:
            # It was heard again, and is on its way now.
            if at in self.held and self.held[at].deadline_ms > self.now_ms:
                self.held[at].spoken = True
        self.pass_time(0)

    def fail_over(self) -> None:
        """Another leader loads what is stored. What the old one has under way may still arrive."""
        self.leader_epoch += 1
        self.delivery.give_up(FencedLeaderEpoch())
        # Most of their counts are known to the next leader: it may find that these were their last.
        before = dict(self.held)
        self._end(set(self.taken()))
        self.counts.clear()
        self.loaded_end = self.log_end
        self.delivery = self.load()
        self.receipts = receipts.Receipts(self.delivery)
        if self.rules.keeps_leases:
            for lease in self.delivery.leases:
                for at in range(lease.first, lease.end):
                    self.held[at] = Held(lease.owner, lease.deadline_ms, lease.count)
            self._check_restored(before)
        assert self.delivery.durable.batches() == self.store.state.batches(), "L13: loaded is not what is stored"

    def _check_restored(self, before: dict[int, Held]) -> None:
        """`before`: what consumers had from the last leader."""
        for at, held in before.items():
            if at < self.delivery.start_offset or held.told_ms <= self.now_ms:
                continue
            now = self.held.get(at)
            assert now is not None, f"L18: the next leader does not know of {held} at {at}"
            same = (now.owner, now.count) == (held.owner, held.count)
            assert same, f"L18: {at} was {held}, and is {now} for the next leader"
            assert now.deadline_ms >= held.told_ms, f"L18: {at} is {held}, and for the next leader {now}"
            now.told_ms = held.told_ms

    # --- laws that hold at every moment ---

    def check(self) -> None:
        delivery, rules = self.delivery, self.rules
        durable, stored = delivery.durable, self.store.state
        start = delivery.start_offset
        assert start >= self.highest_start, f"L8: the start went back to {start}"
        assert start >= self.log_start, "L8: it starts before the log"
        self.highest_start = start
        below = set(range(start)) - self.accepted - self.named
        unnamed = {at for at in below if at >= self.log_start and any(s.first <= at < s.end for s in self.log)}
        assert not unnamed, f"L8: {sorted(unnamed)} lie below the start, and nobody settled them"
        assert len(self.held) <= rules.leases_max, f"L8: {len(self.held)} are leased"
        assert delivery.end_offset - start <= rules.span_max or delivery.end_offset <= self.log_start
        ours = [each for each in self.in_flight if each[0] is delivery]
        if not ours:
            same = (durable.start_offset, durable.batches(), durable.complete_count, durable.terms)
            there = (stored.start_offset, stored.batches(), stored.complete_count, stored.terms)
            assert same == there, f"L13: in memory {same}, stored {there}"
        lag = self.log_end - stored.start_offset - stored.complete_count
        assert lag >= 0, f"L14: the lag is {lag}"
        for at, held in self.held.items():
            assert held.deadline_ms > self.now_ms or held.spoken, f"L5: {at} is held past its time"

    def drain(self) -> None:
        """Somebody polls and accepts until nothing is left: then everything was settled, or has a named cause."""
        self.pass_time(LONGEST_MS)
        for _ in range(4 * (self.log_end + 4)):
            while self.in_flight:
                self.end_write()
            self.pass_time(LONGEST_MS)
            told: list[Acquired] = []
            self.on_told = lambda owner, each, told=told: told.append(each)  # type: ignore[misc]
            if self.acquire("last", Wanted(10_000)) and self.rules.keeps_leases:
                self.begin_write()
                while self.in_flight:
                    self.end_write()
            for each in told:
                self.settle("last", [Said(each.first, each.end, Verb.ACCEPT)])
            self.begin_write()
            self.check()
            if not self.in_flight and self.delivery.start_offset == self.log_end:
                break
        stored = self.store.state
        left = [at for s in self.log for at in range(s.first, s.end) if at not in self.accepted | self.named]
        assert not left, f"L2: {left} were never settled"
        assert stored.start_offset == self.log_end, f"L2: it stands at {stored.start_offset} of {self.log_end}"
        assert stored.complete_count == 0, f"L14: drained, and {stored.complete_count} are counted"


def _leases(delivery: machine.Delivery) -> list[str]:
    return [str(lease) for lease in delivery.leases]
