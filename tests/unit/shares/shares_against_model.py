"""Consumers that do what they should, and what they should not, against a share-partition: laws, and a naive model.

They acquire, accept, release, reject, renew, speak of what is not theirs, leave; time passes, writes are held back,
lost or arrive late, leaders change; the log grows, is compacted, begins later. A history is what a seed stands for.
`UnderLaws` holds the laws after every step; `AgainstModel` also compares every answer and every write with the model.
"""

from random import Random
from typing import Any

from naive_shares import NaiveShares
from share_world import World

from skidway.errors import InvalidRecordState, InvalidRequest
from skidway.shares.acquiring import Acquired, Wanted
from skidway.shares.records import StateBatch, Update
from skidway.shares.settling import Said
from skidway.shares.states import ACKNOWLEDGED, AcquireMode, DeliveryRules, Order, Verb
from skidway.shares.terms import NO_TERMS, changed
from values import replace

OWNERS = ["ann", "bob", "cyd"]
VERBS = [Verb.ACCEPT, Verb.ACCEPT, Verb.RELEASE, Verb.RELEASE, Verb.REJECT, Verb.GAP, Verb.RENEW]
LOCK_MS = 100
NAMES = {0: "available", 2: "acknowledged", 3: "archiving", 4: "archived"}
STEPS = {
    "append": 3,
    "compact": 1,
    "log_start": 1,
    "acquire": 8,
    "settle": 6,
    "settle_one_by_one": 3,
    "settle_anything": 3,
    "leave": 1,
    "pass_time": 4,
    "begin_write": 4,
    "end_write": 5,
    "write_all": 2,
    "fail_over": 1,
}
RECEIPT_STEPS = {**STEPS, "settle_receipt": 6, "change": 3, "untake": 2, "unheard": 4}


class UnderLaws:
    def __init__(self, seed: int, *, by_receipt: bool = False, contents: bool = False, fair: bool = False) -> None:
        """`by_receipt`: some consumers have no sessions, leases and delays of many lengths. `contents`: the group asks
        what records say about their delivery. `fair`: they say whose they are."""
        self.by_receipt = by_receipt
        self.random = random = Random(seed)
        rules = DeliveryRules(LOCK_MS, random.randint(2, 6), random.choice([3, 8, 100]), random.choice([10, 1000]))
        if by_receipt:
            rules = replace(rules, isolates=random.random() < 0.7, receipts_expire=random.random() < 0.3)
        if contents:
            order = random.choice(list(Order))
            expire = rules.receipts_expire or order is not Order.NONE
            rules = replace(rules, order=order, delays=True, receipts_expire=expire)
        if fair:
            rules = replace(rules, delays=True, isolates=False, fair=True, leases_max=random.choice([8, 100]))
        start = random.choice([0, 5])
        # Another broker may have left holes between what is settled.
        settled = [StateBatch(start + 3, start + 6, ACKNOWLEDGED, 1)] if random.random() < 0.2 else []
        self.world = World(rules, start, settled)
        if settled:
            self.world.append(9)
        self.world.on_told = self.on_told
        self.told: list[tuple[str, Acquired]] = []
        self.receipts: list[tuple[int, int]] = []
        """Offsets and delivery numbers, of all leaders."""
        self.trace = [f"{rules} from {self.world.log_start}"]

    def run(self, steps: int) -> None:
        plan = RECEIPT_STEPS if self.by_receipt else STEPS
        if self.world.rules.keeps_leases:
            plan = {**plan, "jump": 1}
        for name in self.random.choices(list(plan), list(plan.values()), k=steps):
            self.trace.append(name)
            getattr(self, name)()
            self.check()
        self.world.drain()

    def check(self) -> None:
        self.world.check()

    # --- the log ---

    def append(self) -> None:
        random = self.random
        size, deliverable = random.randint(1, 9), random.random() < 0.8
        contents: list[tuple[bytes | None, int, int]] = []
        if self.world.rules.opens_batches:
            dues_ms = [0, 0, 0, self.world.now_ms + random.choice([20, 150])]
            is_fair = self.world.rules.fair
            contents = [
                (
                    random.choice([b"a", b"b", b"c", None]),
                    random.choice(dues_ms),
                    random.choice([0, 1, 1, 1, 2]) if is_fair else 0,
                )
                for _ in range(size)
            ]
        self.world.append(size, deliverable=deliverable, contents=contents)

    def compact(self) -> None:
        self.world.compact(self.random.randrange(6))

    def log_start(self) -> None:
        self.move_log_start(self.world.delivery.start_offset + self.random.randint(1, 6))

    def move_log_start(self, offset: int) -> None:
        self.world.move_log_start(offset)

    # --- consumers ---

    def acquire(self) -> None:
        random = self.random
        mode, owner = random.choice(list(AcquireMode)), random.choice(OWNERS)
        wanted = Wanted(random.choice([1, 2, 5, 20]), mode, random.choice([1, 4, 100]))
        self.do_acquire(owner, wanted, self._lock_ms())

    def _lock_ms(self) -> int:
        return self.random.choice([LOCK_MS, LOCK_MS, 0, 40, 250]) if self.by_receipt else LOCK_MS

    def _delay_ms(self) -> int:
        return self.random.choice([0, 0, 0, 30, 1_000]) if self.by_receipt else 0

    def do_acquire(self, owner: str, wanted: Wanted, lock_ms: int) -> list[Acquired]:
        acquired = self.world.acquire(owner, wanted, lock_ms)
        self.trace.append(f"  {owner}: {acquired}")
        return acquired

    def on_told(self, owner: str, each: Acquired) -> None:
        self.told.append((owner, each))
        self.receipts += [(at, each.count) for at in range(each.first, each.end)]

    def _one_told(self) -> tuple[str, Acquired] | None:
        """Mostly one of the last, sometimes one that was settled long ago."""
        recent = self.told[-4:] if self.random.random() < 0.8 else self.told
        return self.random.choice(recent) if recent else None

    def settle(self) -> None:
        if told := self._one_told():
            owner, each = told
            self.do_settle(owner, [Said(each.first, each.end, self.random.choice(VERBS), self._delay_ms())])

    def settle_one_by_one(self) -> None:
        if told := self._one_told():
            owner, each = told
            offsets = range(each.first, each.end)
            self.do_settle(owner, [Said(at, at + 1, self.random.choice(VERBS)) for at in offsets])

    def settle_anything(self) -> None:
        random = self.random
        first = random.randint(max(0, self.world.delivery.start_offset - 2), self.world.delivery.end_offset + 1)
        word = Said(first, first + random.randint(1, 4), random.choice(VERBS))
        self.do_settle(random.choice(OWNERS), [word] * random.choice([1, 1, 2]))

    def do_settle(self, owner: str, said: list[Said]) -> list[Any]:
        self.trace.append(f"  {owner}: {said}")
        return self.world.settle(owner, said)

    def _one_receipt(self) -> tuple[int, int]:
        """Mostly one of the last, sometimes one of another leader or one that nobody has."""
        random = self.random
        recent = self.receipts[-6:] if random.random() < 0.7 else self.receipts
        if not recent and self.world.rules.opens_batches:
            return -1, 1
        if not recent or (not self.world.rules.opens_batches and random.random() < 0.1):
            # The leader knows where its log ends: nothing behind that has a receipt.
            return random.randint(-1, self.world.log_end - 1), random.randint(1, 4)
        return random.choice(recent)

    def settle_receipt(self) -> None:
        verb = self.random.choice([Verb.ACCEPT, Verb.ACCEPT, Verb.RELEASE, Verb.REJECT])
        self.do_settle_receipt(*self._one_receipt(), verb, self._delay_ms())

    def do_settle_receipt(self, at: int, count: int, verb: Verb, delay_ms: int) -> list[Any]:
        self.trace.append(f"  {at} #{count}: {verb.name} {delay_ms}")
        return self.world.settle_receipt(at, count, verb, delay_ms)

    def change(self) -> None:
        self.do_change(self.random.choice(OWNERS), *self._one_receipt(), self.random.choice([0, 1, 150]))

    def do_change(self, owner: str, at: int, count: int, lock_ms: int) -> list[Any]:
        self.trace.append(f"  {at} #{count}: {owner} {lock_ms} ms")
        return self.world.change(owner, at, count, lock_ms)

    def untake(self) -> None:
        if told := self._one_told():
            self.do_untake([told[1]])

    def do_untake(self, acquired: list[Acquired]) -> None:
        self.trace.append(f"  {acquired}")
        self.world.untake(acquired)

    def unheard(self) -> None:
        """The store hears of a delivery, and its consumer does not."""
        acquired = self.do_acquire("ann", Wanted(2, AcquireMode.RECORD_LIMIT), LOCK_MS)
        self.do_acquire("bob", Wanted(1, AcquireMode.RECORD_LIMIT), 0)
        self.write_all()
        self.do_untake(acquired)

    def leave(self) -> None:
        self.do_leave(self.random.choice(OWNERS))

    def do_leave(self, owner: str) -> None:
        self.world.leave(owner)

    def pass_time(self) -> None:
        self.do_pass_time(self.random.choice([1, 40, LOCK_MS - 1, LOCK_MS]))

    def do_pass_time(self, ms: int) -> None:
        self.trace.append(f"  {ms} ms")
        self.world.pass_time(ms)

    # --- the store ---

    def begin_write(self) -> None:
        self.world.begin_write()

    def end_write(self) -> None:
        self.do_end_write(self.random.random() < 0.3)

    def do_end_write(self, lost: bool) -> None:
        self.trace.append(f"  lost={lost}")
        self.world.end_write(lost=lost)

    def write_all(self) -> None:
        for _ in range(3):
            self.begin_write()
            self.do_end_write(False)

    def fail_over(self) -> None:
        self.world.fail_over()
        if not self.world.rules.keeps_leases:
            self.told.clear()

    def jump(self) -> None:
        """The clock on the wall."""
        self.world.wall_ahead_ms += self.random.choice([-500, 500, 7_200_000])


class AgainstModel(UnderLaws):
    def __init__(self, seed: int, *, by_receipt: bool = False, contents: bool = False, fair: bool = False) -> None:
        super().__init__(seed, by_receipt=by_receipt, contents=contents, fair=fair)
        self.model = self.new_model()

    def check(self) -> None:
        super().check()
        delivery, model = self.world.delivery, self.model
        assert (delivery.start_offset, delivery.end_offset) == (model.start, model.end)
        names = {**NAMES, 1: "leased", 5: "settling", 6: "delayed", 7: "available"}
        for at in range(model.start, model.end):
            row = model.row(at)
            assert (names[delivery.live.state_at(at)], delivery.live.count_at(at)) == (row.state, row.count), at
        assert delivery.held_offsets == model.held()

    def move_log_start(self, offset: int) -> None:
        super().move_log_start(offset)
        self.model.on_log_start(self.world.log_start)

    def do_acquire(self, owner: str, wanted: Wanted, lock_ms: int) -> list[Acquired]:
        world = self.world
        acquired = super().do_acquire(owner, wanted, lock_ms)
        expected: list[Acquired] = []
        for upto in world.looks():
            offset = self.model.next_offset(upto)
            if expected or offset is None or offset >= world.log_end:
                break
            spans = world.spans_from(offset)
            self.model.examine(world.contents, spans, world.now_ms)
            expected = self.model.acquire(owner, offset, spans, wanted, world.now_ms, lock_ms)
        assert acquired == expected
        self.model.on_time(world.now_ms)
        return acquired

    def do_settle(self, owner: str, said: list[Said]) -> list[Any]:
        expected = self.model.settle(owner, said, self.world.now_ms)
        answers = super().do_settle(owner, said)
        assert _shown(answers) == expected
        return answers

    def do_settle_receipt(self, at: int, count: int, verb: Verb, delay_ms: int) -> list[Any]:
        expected = self.model.settle_receipt(at, count, verb, delay_ms, self.world.now_ms)
        answers = super().do_settle_receipt(at, count, verb, delay_ms)
        assert _shown(answers) == expected
        return answers

    def do_change(self, owner: str, at: int, count: int, lock_ms: int) -> list[Any]:
        expected = self.model.change(owner, at, count, lock_ms, self.world.now_ms)
        answers = super().do_change(owner, at, count, lock_ms)
        assert _shown(answers) == expected
        return answers

    def do_untake(self, acquired: list[Acquired]) -> None:
        self.model.untake(acquired)
        super().do_untake(acquired)

    def do_leave(self, owner: str) -> None:
        self.model.release_owner(owner)
        super().do_leave(owner)

    def do_pass_time(self, ms: int) -> None:
        super().do_pass_time(ms)
        self.model.on_time(self.world.now_ms)

    def begin_write(self) -> None:
        before = len(self.world.in_flight)
        super().begin_write()
        expected = self.model.next_write()
        written = self.world.in_flight[-1][2] if len(self.world.in_flight) > before else None
        spelt = None if written is None else _spelt(written)
        assert spelt == expected, f"{spelt} is written, expected {expected}"
        if written is not None and self.world.rules.keeps_leases:
            terms = changed(self.world.delivery.durable.terms, written.terms or NO_TERMS, written.start_offset).terms
            found = {at: term for term in terms for at in range(term.first, term.end)}
            self.model.check_terms(found, written.start_offset, self.world.now_ms)

    def do_end_write(self, lost: bool) -> None:
        ours = bool(self.world.in_flight) and self.world.in_flight[0][0] is self.world.delivery
        super().do_end_write(lost)
        if ours and lost:
            self.model.on_failed(self.world.now_ms)
        elif ours:
            self.model.on_written(self.world.now_ms)
        self.model.on_time(self.world.now_ms)

    def fail_over(self) -> None:
        super().fail_over()
        self.model = self.new_model()

    def new_model(self) -> NaiveShares:
        stored = self.world.store.state
        model = NaiveShares(self.world.rules, stored.start_offset)
        for run in stored.batches():
            for at in range(run.first, run.end):
                row = model.row(at)
                row.state, row.count = model.stored[at] = NAMES[run.state], run.count
        model.end = stored.end_offset
        for term in stored.terms.terms:
            model.restore(term, self.world.now_ms, self.world.wall_ms)
        model.on_log_start(self.world.log_start)
        return model


def _shown(answers: list[Any]) -> str:
    match answers:
        case []:
            return "waits"
        case [None]:
            return "ok"
        case [InvalidRecordState()]:
            return "state"
        case [InvalidRequest()]:
            return "request"
    raise AssertionError(f"nobody expects {answers}")


def _spelt(update: Update) -> tuple[int, int, dict[int, tuple[str, int]]]:
    offsets = {at: (NAMES[each.state], each.count) for each in update.batches for at in range(each.first, each.end)}
    return update.start_offset, update.complete_count, offsets
