"""The dead letters of one share-partition, written one batch after the other.

```text
           records wait          plan stored          letters there
  resting -------------> planning ----------> writing -------------> resting (the records are archived)
     ^                      |                    |
     +------- paused <------+--------------------+  it cannot be written now
```

A plan is produced under its stored name until the leader of the dead letters has it: sent twice, it is there once. Only
where it is certain that it is not there another plan takes its place: its topic is gone; the sequence before it is
missing there; or this leader made it, and was refused each time it was sent.

If a letter cannot be written, the record waits and the operator is told (`block`), or it is archived without one
(`archive`): at once where waiting would not help, else after some tries. Other records go on being delivered.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Protocol

from skidway.broker.partitions.partition import Partition
from skidway.broker.shares.group_rules import GroupRules
from skidway.broker.shares.letter_copies import Scribe, Unreadable, records_between, size_of
from skidway.broker.shares.letter_office import LetterOffice, Missing, Refused, Target
from skidway.broker.shares.news import LettersBlocked, LettersGoOn, LettersLost
from skidway.broker.world import World
from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.group_configs import ShareLetters
from skidway.records.batch import HEADER_BYTES
from skidway.records.record import Record, build_batch
from skidway.runtime.timers import Timer
from skidway.shares.delivery import Delivery
from skidway.shares.letter_notes import LETTERS_MAX, UNKNOWN_MS, Death, Plan
from skidway.shares.states import Cause

PAUSE_MS_MIN, PAUSE_MS_MAX = 250, 30_000
CREATED_MS = 100
"""Until this node has read of a topic that was made."""
TRIES_MAX = 5
"""Before a record is archived without its letter, where the group says so."""
MISSING_BEFORE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The batch before it is not there, so this one is not either."""
FOR_GOOD = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Refused before anything was appended, and refused again unless somebody does something."""
THERE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
NO_TOPIC = "the group has no topic for dead letters any more"


class Share(Protocol):
    """The share-partition whose letters are written."""

    closed: bool
    delivery: Delivery | None
    partition: Partition
    rules: GroupRules

    @property
    def group(self) -> str: ...

    def current(self) -> Delivery | None:
        """With the group's rules and the log's start as they are now."""
        ...

    def pump(self) -> None:
        """Have stored what is to be stored."""
        ...

    def look_again(self) -> None:
        """Who waits for it should; perhaps nobody needs it any more."""
        ...


class State(Enum):
    RESTING = "resting"
    WORKING = "working"
    PAUSED = "paused"


class LetterWriter:
    __slots__ = (
        "_blocked",
        "_certain",
        "_mine",
        "_new_id",
        "_office",
        "_pause_ms",
        "_share",
        "_state",
        "_timer",
        "_tries",
        "_world",
    )

    def __init__(self, world: World, office: LetterOffice, share: Share) -> None:
        self._world = world
        self._office = office
        self._share = share
        self._state = State.RESTING
        self._timer: Timer | None = None
        self._pause_ms = PAUSE_MS_MIN
        self._tries = 0
        self._blocked = ""
        """What the operator was told last."""
        self._new_id = False
        """What the last plan's producer has sent is not known."""
        self._mine: Plan | None = None
        """A plan of this leader of which nothing can be there: it was not sent, or refused each time."""
        self._certain: Plan | None = None
        """A plan whose letters are certainly not there: another may take its place."""

    @property
    def trouble(self) -> str:
        """Why letters cannot be written now; empty: they can."""
        return self._blocked

    @property
    def is_idle(self) -> bool:
        delivery = self._share.delivery
        return self._state is State.RESTING and (delivery is None or not delivery.letters.waiting)

    def wake(self) -> None:
        """Something may have to be written. It happens soon, and outside of whoever calls."""
        delivery = self._share.delivery
        if self._state is State.RESTING and delivery is not None and delivery.letters.waiting:
            self._state = State.PAUSED
            self._timer = self._world.timers.at(self._world.clock.monotonic_ms(), self._go_on)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- the next step ---

    def _go_on(self) -> None:
        self._state = State.RESTING
        delivery = None if self._share.closed else self._share.current()
        if delivery is None or delivery.letters.is_planning:
            return
        due = delivery.letters.due(delivery.live, delivery.start_offset, delivery.end_offset)
        if due is None:
            self._share.look_again()  # nothing holds it any more, perhaps
            return
        self._state = State.WORKING
        plan = delivery.letters.open_plan(delivery.live, delivery.start_offset)
        if plan is not None and (plan == self._certain or not self._office.is_there(plan)):
            plan = None
        readable = self._share.partition.log.high_watermark
        if readable < (due[0] + 1 if plan is None else plan.end):
            # A new leader hears of what is committed a little later.
            self._pause(PAUSE_MS_MIN)
        elif plan is not None:
            self._read(plan.first, plan.end, partial(self._write, plan))
        else:
            self._prepare((due[0], min(due[1], readable)))

    def _prepare(self, due: tuple[int, int]) -> None:
        rules = self._share.rules.letters
        if rules is None:
            self._give_up(*due, NO_TOPIC)
            return
        try:
            source = self._share.partition
            target = self._office.target(rules.topic, source.topic, source.index, of_queue=rules.of_queue)
        except Missing:
            now_ms, like = self._world.clock.monotonic_ms(), source.topic if rules.of_queue else ""
            self._office.create(rules.topic, now_ms, partial(self._on_created, due), like)
        except Refused as refusal:
            self._fail(*due, str(refusal), for_good=True)
        else:
            self._read(*due, partial(self._plan, rules, target, due))

    def _on_created(self, due: tuple[int, int], why: str) -> None:
        if why:
            self._fail(*due, why)
        else:
            self._pause(CREATED_MS)

    def _read(self, first: int, end: int, then: partial[None]) -> None:
        def on_read(found: dict[int, Record]) -> None:
            if not self._share.closed:
                then(found)

        def on_failed(error: Exception) -> None:
            if not isinstance(error, Unreadable | ProtocolError):
                raise error
            if not self._share.closed:
                self._fail(first, min(end, first + 1), f"the record cannot be read: {error}", for_good=True)

        self._world.slices.begin(records_between(self._share.partition.log, first, end), on_read, on_failed)

    # --- planning ---

    def _plan(self, rules: ShareLetters, target: Target, due: tuple[int, int], found: dict[int, Record]) -> None:
        first, end = due
        delivery = self._delivery()
        if first not in found:
            # Whoever rejected it spoke of a range: there was no record at this offset.
            self._archive(first, min(found, default=end))
            return
        stop, size, letters = first, HEADER_BYTES, list[Record]()
        while stop in found and len(letters) < LETTERS_MAX:
            letters.append(self._letter(delivery, stop, found[stop], rules.copies))
            size += size_of(letters[-1])
            if len(letters) > 1 and size > target.bytes_max:
                break
            stop += 1
        if len(build_batch(letters[:1])) > target.bytes_max:
            told = f"its letter is larger than max.message.bytes of {rules.topic} ({target.bytes_max})"
            self._fail(first, first + 1, told, for_good=True)
            return
        last = delivery.letters.last_plan
        if last is None or self._new_id:
            take = partial(self._on_id, target, first, stop)
            self._office.take_id(self._world.clock.monotonic_ms(), take)
            return
        sequence = last.sequence if last == self._certain else last.next_sequence
        self._propose(Plan(last.producer_id, sequence, first, stop, target.topic.id, target.partition))

    def _on_id(self, target: Target, first: int, end: int, producer_id: int | ProtocolError) -> None:
        if self._share.closed:
            return
        if isinstance(producer_id, ProtocolError):
            self._fail(first, end, f"no producer id: {producer_id}")
        else:
            self._propose(Plan(producer_id, 0, first, end, target.topic.id, target.partition))

    def _propose(self, plan: Plan) -> None:
        self._state, self._new_id = State.RESTING, False
        self._certain, self._mine = None, plan
        self._delivery().letters.propose(plan)
        self._share.pump()

    # --- writing ---

    def _write(self, plan: Plan, found: dict[int, Record]) -> None:
        delivery, rules = self._delivery(), self._share.rules.letters
        copies = rules is None or rules.copies
        offsets = range(plan.first, plan.end)
        letters = [self._letter(delivery, offset, found.get(offset), copies) for offset in offsets]
        batch = build_batch(letters, producer_id=plan.producer_id, producer_epoch=0, base_sequence=plan.sequence)
        if not self._office.is_there(plan):
            self._pause(CREATED_MS)
            return
        self._office.send(plan, batch, self._world.clock.monotonic_ms(), partial(self._on_sent, plan))

    def _letter(self, delivery: Delivery, offset: int, record: Record | None, copies: bool) -> Record:
        source, count = self._share.partition, delivery.live.count_at(offset)
        death = delivery.letters.deaths.at(offset)
        if death is None:
            exhausted = count >= delivery.rules.count_limit
            death = Death(offset, offset + 1, Cause(exhausted), UNKNOWN_MS, UNKNOWN_MS)
        scribe = Scribe(source.topic, source.index, self._share.group, copies)
        return scribe.letter(offset, record, death, count, self._world.clock.wall_ms())

    def _on_sent(self, plan: Plan, code: ErrorCode, text: str) -> None:
        if self._share.closed:
            return
        if code in THERE:
            if self._blocked:
                self._world.report(LettersGoOn(self._share.group, str(self._share.partition), self._topic))
            self._tries, self._pause_ms, self._blocked = 0, PAUSE_MS_MIN, ""
            self._office.written += plan.end - plan.first
            self._archive(plan.first, plan.end)
            return
        if code in MISSING_BEFORE:
            self._certain, self._new_id = plan, True
            self._pause(0)
            return
        if code not in FOR_GOOD:
            self._mine = None
        elif plan == self._mine:
            self._certain = plan
        said = f"{self._topic} did not accept the letter: {code.name}{f' ({text})' if text else ''}"
        self._fail(plan.first, plan.end, said, for_good=code in FOR_GOOD)

    # --- what cannot be written ---

    def _fail(self, first: int, end: int, why: str, *, for_good: bool = False) -> None:
        self._tries += 1
        rules = self._share.rules.letters
        if rules is None or (not rules.blocks and (for_good or self._tries >= TRIES_MAX)):
            self._give_up(first, end, why)
            return
        if why != self._blocked:
            self._blocked = why
            group, partition = self._share.group, str(self._share.partition)
            self._world.report(LettersBlocked(group, partition, first, self._topic, why))
        self._pause(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)

    def _give_up(self, first: int, end: int, why: str) -> None:
        self._tries, self._pause_ms, self._blocked, self._new_id = 0, PAUSE_MS_MIN, "", True
        group = self._share.group
        self._office.given_up += end - first
        self._world.report(LettersLost(group, str(self._share.partition), first, end - 1, why))
        self._archive(first, end)

    def _archive(self, first: int, end: int) -> None:
        self._state = State.RESTING
        delivery = self._delivery()
        delivery.letter_written(first, end)
        delivery.letters.deaths.forget(first, end)
        self._share.pump()

    def _pause(self, ms: int) -> None:
        self._state = State.PAUSED
        self._timer = self._world.timers.at(self._world.clock.monotonic_ms() + ms, self._go_on)

    @property
    def _topic(self) -> str:
        rules = self._share.rules.letters
        return "" if rules is None else rules.topic

    def _delivery(self) -> Delivery:
        assert self._share.delivery is not None
        return self._share.delivery
