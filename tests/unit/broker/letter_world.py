"""A share-partition whose dead records become letters, with everything that can go wrong between.

The store loses writes and answers, the topic of the letters refuses, loses requests or answers, is deleted and made
anew; leaders change with all that under way. `LetterWorld` holds law L11 against what is in the store and in the topic:
a dead record has one letter, before it is archived; gaps and what the log has deleted have none.
"""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from skidway.broker.shares.group_rules import GroupRules
from skidway.broker.shares.letter_office import Refused, Sent, Target
from skidway.broker.shares.share_partition import SharePartition
from skidway.errors import CoordinatorNotAvailable, ErrorCode, FencedLeaderEpoch, ProtocolError
from skidway.limits import DEFAULT_LIMITS
from skidway.metadata.group_configs import ShareLetters
from skidway.metadata.image import Topic
from skidway.records.batch import iter_headers
from skidway.records.dead_letter_headers import read_report
from skidway.records.record import Record, build_batch, read_records
from skidway.runtime.slices import Slices
from skidway.runtime.timers import Timers
from skidway.shares.acquiring import Offered, Span, Wanted
from skidway.shares.durable import Durable
from skidway.shares.letter_notes import Plan
from skidway.shares.records import Stored, Update
from skidway.shares.settling import Said
from skidway.shares.states import ARCHIVING, TERMINAL, DeliveryRules, LetterFirst, Verb

RULES = DeliveryRules(lock_ms=1_000, count_limit=2, end_of_life=LetterFirst())
STEPS = {"append": 3, "acquire": 5, "settle": 6, "keep": 8, "post": 8, "wait": 4, "fail_over": 1, "trouble": 1}


class Log:
    """Batches in memory. Some offsets have no record: compaction took it."""

    def __init__(self) -> None:
        self.start_offset = self.high_watermark = 0
        self.limits = DEFAULT_LIMITS
        self.batches: list[tuple[int, int, bytes]] = []
        self.records: set[int] = set()

    def append(self, size: int, gap: int | None) -> None:
        first = self.high_watermark
        kept = [number for number in range(size) if number != gap] or [0]
        batch = build_batch([Record(0, 1, b"k", b"%d" % (first + number)) for number in kept], base_offset=first)
        # The records keep their places: a batch whose last offset says where it ends.
        data = bytes(batch) if len(kept) == size else _with_gap(first, size, kept)
        self.batches.append((first, first + size, data))
        self.records |= {first + number for number in kept}
        self.high_watermark += size

    def bound(self, upto: object) -> int:
        return self.high_watermark

    def read(self, offset: int, max_bytes: int, upto: object = None) -> Any:
        data = next((data for first, end, data in self.batches if first <= offset < end), None)
        return None if data is None else SimpleNamespace(read=lambda: data)


def _with_gap(first: int, size: int, kept: list[int]) -> bytes:
    """Each record alone in its batch, so that one offset can be left out between."""
    parts = [build_batch([Record(0, 1, b"k", b"%d" % (first + n))], base_offset=first + n) for n in kept]
    return b"".join(parts)


class Store:
    def __init__(self) -> None:
        self.state = Durable(Stored(1, 0))
        self.leader_epoch = 0
        self.asked: list[tuple[int, Update, Any]] = []

    def load(self, key: object, leader_epoch: int, now_ms: int, respond: Any) -> None:
        self.leader_epoch = leader_epoch
        state = self.state
        respond(Stored(state.state_epoch, state.start_offset, state.batches(), state.letters))

    def begin_anew(self, *_: object) -> None:
        raise AssertionError("nothing is behind the end of this log")

    def write(self, key: object, state_epoch: int, epoch: int, update: Update, now_ms: int, respond: Any) -> None:
        self.asked.append((epoch, update, respond))


class Office:
    """The topic of the letters: its log takes a producer's sequence once."""

    def __init__(self) -> None:
        self.number = 1
        self.letters: list[int] = []
        """Source offsets."""
        self.last: dict[int, int] = {}
        self.seen: set[tuple[int, int]] = set()
        self.posted: list[tuple[Plan, bytes, Sent]] = []
        self.next_id = 0
        self.refusal = ""
        self.written = self.given_up = 0

    @property
    def topic_id(self) -> bytes:
        return self.number.to_bytes(16, "big")

    def target(self, name: str, source: str, partition: int, *, of_queue: bool = False) -> Target:
        if self.refusal:
            raise Refused(self.refusal)
        return Target(Topic(name, self.topic_id), 0, 1_000)

    def is_there(self, plan: Plan) -> bool:
        return plan.topic_id == self.topic_id

    def take_id(self, now_ms: int, answer: Any) -> None:
        self.next_id += 1
        answer(self.next_id)

    def send(self, plan: Plan, batch: bytearray, now_ms: int, sent: Sent) -> None:
        self.posted.append((plan, bytes(batch), sent))

    def append(self, plan: Plan, batch: bytes) -> ErrorCode:
        if plan.topic_id != self.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        ((_, header),) = iter_headers(batch)
        if (header.producer_id, header.base_sequence) in self.seen:
            return ErrorCode.NONE
        last = self.last.get(header.producer_id)
        if last is not None and header.base_sequence != last + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.seen.add((header.producer_id, header.base_sequence))
        self.last[header.producer_id] = header.last_sequence
        for record in read_records(batch, decompressed_bytes_max=2**20):
            report = read_report(record.headers)
            assert report is not None
            self.letters.append(report.offset)
        return ErrorCode.NONE

    def delete(self) -> None:
        """And another of the same name."""
        self.number += 1
        self.letters, self.last, self.seen = [], {}, set()


def _archiving(state: Durable) -> set[int]:
    return {at for run in state.batches() if run.state == ARCHIVING for at in range(run.first, run.end)}


class LetterWorld:
    def __init__(self, seed: int, *, blocks: bool = True) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms, wall_ms=lambda: 10**12 + self.now_ms)
        self.events: list[Any] = []
        self.timers = Timers()
        slices = Slices(cast(Any, clock), lambda: None)
        self.world: Any = SimpleNamespace(
            clock=clock, timers=self.timers, slices=slices, report=self.events.append, settings=None
        )
        self.log, self.store, self.office = Log(), Store(), Office()
        self.rules = GroupRules(RULES, letters=ShareLetters("dlq.t", True, blocks))
        self.epoch = 0
        self.held: list[tuple[int, int]] = []
        self.dead: set[int] = set()
        """Offsets that the store has had as archiving, or the leader."""
        self.accepted: set[int] = set()
        """By the last word about them. Who is told that a rejection failed may accept, and it may be stored."""
        self.excused: set[int] = set()
        """Their letters were in a topic that was deleted, or their log begins later."""
        self.share = self.load()

    def load(self) -> SharePartition:
        self.epoch += 1
        role = SimpleNamespace(leader_epoch=self.epoch)
        partition: Any = SimpleNamespace(role=role, log=self.log, topic="t", index=0)
        key: Any = SimpleNamespace(group_id="g", topic_id=bytes(16), partition=0)
        share = SharePartition(
            self.world,
            self.store,
            lambda group: self.rules,
            key,
            partition,
            lambda share: None,
            cast(Any, self.office),
            lambda share: share.pump(),
        )
        share.load(self.now_ms)
        return share

    def run(self, steps: int) -> None:
        for name in self.random.choices(list(STEPS), list(STEPS.values()), k=steps):
            getattr(self, name)()
            self.turn()
        self.drain()

    def turn(self) -> None:
        self.timers.fire(self.now_ms)
        self.world.slices.run()

    # --- steps ---

    def append(self) -> None:
        size = self.random.randint(1, 5)
        self.log.append(size, self.random.choice([None, None, self.random.randrange(size)]) if size > 1 else None)

    def acquire(self) -> None:
        delivery = self.share.current()
        offset = None if delivery is None else delivery.next_offset()
        if delivery is None or offset is None or offset >= self.log.high_watermark:
            return
        spans = [Span(first, end) for first, end, _ in self.log.batches if end > offset]
        wanted = Wanted(self.random.choice([1, 5, 50]))
        got = delivery.acquire("ann", Offered(offset, spans), wanted, self.now_ms)
        self.held += [(each.first, each.end) for each in got]
        self.share.pump()

    def settle(self) -> None:
        if self.held:
            first, end = self.held.pop(self.random.randrange(len(self.held)))
            self.say(first, end, self.random.choice([Verb.ACCEPT, Verb.REJECT, Verb.REJECT, Verb.RELEASE]))

    def say(self, first: int, end: int, verb: Verb) -> None:
        offsets = set(range(first, end))
        self.accepted = self.accepted | offsets if verb is Verb.ACCEPT else self.accepted - offsets
        self.share.settle("ann", [Said(first, end, verb)], self.now_ms, lambda error: None)

    def store_one(self, fate: str) -> None:
        epoch, update, respond = self.store.asked.pop(0)
        error: ProtocolError | None = None
        if epoch < self.store.leader_epoch:
            error = FencedLeaderEpoch()
        elif fate != "lost":
            self._apply(update)
        if fate != "fine" and error is None:
            error = CoordinatorNotAvailable()
        respond(error)
        if self.share.delivery is not None:
            self.dead |= _archiving(self.share.delivery.durable)

    def _apply(self, update: Update) -> None:
        state = self.store.state
        before = _archiving(state)
        update.complete_count = -1  # a write whose answer was lost may come twice
        state.apply(update)
        now = _archiving(state)
        self.dead |= now
        for at in before - now - self.accepted:
            is_done = at < state.start_offset or state.cells.state_at(at) in TERMINAL
            if is_done and at in self.log.records and at >= self.log.start_offset:
                written = at in self.office.letters or at in self.excused
                assert written, f"L11: {at} is archived, and has no letter"

    def post_one(self, fate: str) -> None:
        plan, batch, sent = self.office.posted.pop(0)
        code = ErrorCode.REQUEST_TIMED_OUT
        if fate == "too large":
            code = ErrorCode.MESSAGE_TOO_LARGE
        elif fate != "lost":
            code = self.office.append(plan, batch)
        if fate == "unanswered":
            code = ErrorCode.REQUEST_TIMED_OUT
        self.check()
        sent(code, "")

    def keep(self) -> None:
        if self.store.asked:
            self.store_one(self.random.choice(["fine", "fine", "fine", "lost", "unanswered"]))

    def post(self) -> None:
        if self.office.posted:
            self.post_one(self.random.choice(["fine", "fine", "lost", "unanswered", "too large"]))

    def wait(self) -> None:
        self.now_ms += self.random.choice([1, 300, 1_000, 31_000])

    def fail_over(self) -> None:
        """What the old leader has under way may still arrive, also at the topic of the letters."""
        self.held.clear()
        self.share.close(FencedLeaderEpoch())
        self.share = self.load()

    def trouble(self) -> None:
        which = self.random.randrange(3)
        if which == 0:
            self.excused |= set(self.office.letters)
            self.office.delete()
        elif which == 1:
            self.office.refusal = "" if self.office.refusal else "no such topic"
        else:
            self.log.start_offset = min(self.log.start_offset + self.random.randint(1, 3), self.log.high_watermark)

    # --- laws ---

    def check(self) -> None:
        letters = self.office.letters
        twice = {at for at in letters if letters.count(at) > 1}
        assert not twice, f"L11: {sorted(twice)} have two letters"
        gaps = set(letters) - self.log.records
        assert not gaps, f"L11: {sorted(gaps)} have letters, and there are no records"
        living = set(letters) - self.dead
        assert not living, f"L11: {sorted(living)} have letters, and are not dead"

    def drain(self) -> None:
        self.office.refusal = ""
        for _ in range(400):
            self.now_ms += 5_000
            self.turn()
            while self.store.asked:
                self.store_one("fine")
            while self.office.posted:
                self.post_one("fine")
            self.acquire()
            for first, end in self.held:
                self.say(first, end, Verb.ACCEPT)
            self.held.clear()
            self.check()
            if self.store.state.start_offset == self.log.high_watermark:
                break
        at = self.store.state.start_offset
        assert at == self.log.high_watermark, f"L11: the start stands at {at}, of {self.log.high_watermark}"
        wanted = {at for at in self.dead & self.log.records if at >= self.log.start_offset}
        wanted -= self.excused | self.accepted
        assert wanted <= set(self.office.letters), f"L11: {sorted(wanted - set(self.office.letters))} have no letter"
        assert self.office.written >= len(wanted), "what a leader learnt to be there is counted"
