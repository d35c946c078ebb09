"""One share-partition, hosted: loaded from the store, kept there, woken by time.

It is loaded with the leader epoch of its partition, which fences the leader before. When the epoch is over, or the
store says that somebody else writes, it is closed for good: what was not stored did not happen, and who waits looks
again. The next fetch loads it again, if this node leads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from skidway.broker.partitions.partition import Partition
from skidway.broker.shares.cutting import reaches_behind, without_the_rest
from skidway.broker.shares.group_rules import RulesOf, first_offset
from skidway.broker.shares.letter_office import LetterOffice
from skidway.broker.shares.letter_writer import LetterWriter
from skidway.broker.shares.opening import BYTES_MAX, open_batches
from skidway.broker.shares.reading import HEADERS_MAX, Read, look
from skidway.broker.world import World
from skidway.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRecordState,
    InvalidRequest,
    NotLeaderOrFollower,
    ProtocolError,
)
from skidway.ports import FileSlice
from skidway.runtime.timers import Timer
from skidway.shares.acquiring import Acquired, Offered, Wanted
from skidway.shares.delivery import Delivery
from skidway.shares.queue_groups import topic_of
from skidway.shares.receipts import Receipts
from skidway.shares.records import UNRESOLVED, Stored, Update
from skidway.shares.settling import Answer, Keep, Said
from skidway.shares.states import AVAILABLE, AcquireMode, Order, Verb

LOOKS_MAX = 8
"""So often one fetch reads on in a partition that has nothing for readers."""
FAIR_LOOKS_MAX = 2
"""Of these in search of somebody else's records, if a tenant is noisy."""
OTHERS_WITHIN = 100
"""Offsets: records that lie farther apart go out one by one, so that nobody reads megabytes for ten of them."""
LOOKS_AHEAD_MAX = 2
"""Of who counts, in a partition: many are asked for at once, and one that has more says so the next time."""
PAUSE_MS = 1_000
"""After the store has given up on a write: it has tried for seconds."""
SUPERSEDED = (FencedLeaderEpoch, FencedStateEpoch, InvalidRequest)
"""The store belongs to another leader, or what was loaded does not count any more."""


class Key(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition(self) -> int: ...


class Store(Protocol):
    """What is durable of share-partitions, wherever it is. Every question is answered once, at once or later."""

    def load(self, key: Key, leader_epoch: int, now_ms: int, respond: Callable[[Stored | ProtocolError], None]) -> None:
        """Fences all older leaders."""
        ...

    def begin_anew(
        self,
        key: Key,
        leader_epoch: int,
        stored: Stored,
        now_ms: int,
        respond: Callable[[ProtocolError | None], None],
    ) -> None:
        """From now on this is what is stored, in a new state epoch. For queues, whose state epochs no group counts."""
        ...

    def write(
        self,
        key: Key,
        state_epoch: int,
        leader_epoch: int,
        update: Update,
        now_ms: int,
        respond: Callable[[ProtocolError | None], None],
    ) -> None: ...


class Waiter(Protocol):
    """A fetch that waits for records."""

    def look_again(self, now_ms: int) -> None: ...

    def finish(self) -> None:
        """It waits no longer."""
        ...


class Taken(NamedTuple):
    records: FileSlice
    acquired: list[Acquired]
    keep: Keep | None
    """Nobody may hear of it before the keep says that the leases are stored; None: at once."""


class SharePartition:
    __slots__ = (
        "_on_loaded_acts",
        "_rules",
        "_soon",
        "_store",
        "_timer",
        "_world",
        "closed",
        "delivery",
        "key",
        "leader_epoch",
        "letters",
        "on_change",
        "partition",
        "refusal",
        "rules",
        "waiters",
    )

    def __init__(
        self,
        world: World,
        store: Store,
        rules: RulesOf,
        key: Key,
        partition: Partition,
        on_change: Callable[[SharePartition], None],
        office: LetterOffice,
        soon: Callable[[SharePartition], None],
    ) -> None:
        """`on_change`: who waits for it should look again. `office`: for its dead letters. `soon`: has it pumped at the
        end of the turn, so that all that a turn brings is one write."""
        self._world = world
        self._store = store
        self._rules = rules
        self.key = key
        self.rules = rules(key.group_id)
        self.partition = partition
        self.leader_epoch = partition.role.leader_epoch
        self.on_change = on_change
        self._soon = soon
        self.delivery: Delivery | None = None
        """None until it is loaded."""
        self.refusal: ProtocolError | None = None
        """Why it could not be loaded."""
        self.closed = False
        self.waiters: dict[Waiter, None] = {}
        """Fetches that look again when something changes, the longest-waiting first."""
        self._timer: Timer | None = None
        self.letters = LetterWriter(world, office, self)
        self._on_loaded_acts: list[Callable[[], None]] = []

    # --- its life ---

    def when_loaded(self, act: Callable[[], None]) -> None:
        """Now, or as soon as it is known what is stored or why that cannot be known."""
        if self.delivery is not None or self.closed:
            act()
        else:
            self._on_loaded_acts.append(act)

    def _tell_loaded(self) -> None:
        acts, self._on_loaded_acts = self._on_loaded_acts, []
        for act in acts:
            act()

    def load(self, now_ms: int) -> None:
        self._store.load(self.key, self.leader_epoch, now_ms, self._on_loaded)

    def _on_loaded(self, answer: Stored | ProtocolError) -> None:
        if self.closed:
            return
        if isinstance(answer, ProtocolError):
            self._refuse(answer)
        elif answer.start_offset == UNRESOLVED:
            steps = first_offset(self.partition.log, self.rules, self._world.clock.wall_ms())
            self._world.slices.begin(steps, lambda offset: self._on_resolved(answer, offset), self._on_bug)
        elif topic_of(self.group) is not None and reaches_behind(answer, log_end := self.partition.log.end_offset):
            anew = without_the_rest(answer, log_end, answer.state_epoch + 1)
            now_ms, begun = self._world.clock.monotonic_ms(), partial(self._on_begun, anew)
            self._store.begin_anew(self.key, self.leader_epoch, anew, now_ms, begun)
        else:
            self._begin(answer)

    def _on_begun(self, stored: Stored, error: ProtocolError | None) -> None:
        if self.closed:
            return
        if error is not None:
            self._refuse(error)
        else:
            self._begin(stored)

    def _on_resolved(self, stored: Stored, offset: int) -> None:
        """Stored before anything is delivered: another leader would resolve it again, and pass over records."""
        if self.closed:
            return
        stored.start_offset = offset
        now_ms, on_stored = self._world.clock.monotonic_ms(), partial(self._on_begun, stored)
        self._store.write(self.key, stored.state_epoch, self.leader_epoch, Update(offset, 0), now_ms, on_stored)

    def _on_bug(self, bug: Exception) -> None:
        self._refuse(bug if isinstance(bug, ProtocolError) else ProtocolError(str(bug)))
        if not isinstance(bug, ProtocolError):
            raise bug

    def _begin(self, stored: Stored) -> None:
        self.delivery = Delivery(stored, self.rules.delivery, self.partition.log.start_offset)
        self.delivery.resume(self._world.clock.monotonic_ms(), self._world.clock.wall_ms())
        self.pump()
        self.on_change(self)
        self._tell_loaded()

    def _refuse(self, error: ProtocolError) -> None:
        fenced = isinstance(error, FencedLeaderEpoch | FencedStateEpoch)
        self.close(NotLeaderOrFollower(f"the store says: {error}") if fenced else error)

    def close(self, why: ProtocolError) -> None:
        if self.closed:
            return
        self.closed = True
        self.refusal = why
        if self._timer is not None:
            self._timer.cancel()
        self.letters.close()
        if self.delivery is not None:
            self.delivery.give_up(why)
        self.on_change(self)
        self._tell_loaded()

    @property
    def group(self) -> str:
        return self.key.group_id

    def look_again(self) -> None:
        self.on_change(self)

    @property
    def is_idle(self) -> bool:
        """Nobody waits for it, and it has nothing to store and no letter to write."""
        return not self.waiters and self.delivery is not None and self.delivery.is_idle and self.letters.is_idle

    # --- what consumers ask ---

    def take(
        self, member: str, max_bytes: int, wanted: Wanted, now_ms: int, lock_ms: int | None = None
    ) -> Taken | None:
        """Records for a member, leased to it, for so long or as long as the group says; None when there are none now.
        Raises why there cannot be any."""
        if self.refusal is not None:
            raise self.refusal
        delivery = self.current()
        if delivery is None or wanted.records <= 0:
            return None
        delivery.on_time(now_ms)
        try:
            for number in range(LOOKS_MAX):
                offset, seeks_others = _next_offset(delivery, self.partition.log.bound(self.rules.upto), number)
                read = None if offset is None else self._look(offset, max_bytes, wanted, seeks_others=seeks_others)
                if offset is None or read is None:
                    return None
                _open(self._world, delivery, read, now_ms)
                acquired = delivery.acquire(member, Offered(offset, read.spans), wanted, now_ms, lock_ms)
                if acquired:
                    read.note_end(self.partition.log, acquired[-1].end)
                    return Taken(read.part(acquired), acquired, delivery.last_keep)
            self.on_change(self)  # there is more to look at, in another turn
            return None
        finally:
            self._soon(self)

    def can_take(self) -> bool:
        """Whether a fetch that looks now may find something, or has something to hear."""
        delivery = self.current()
        if self.refusal is not None or delivery is None:
            return self.refusal is not None
        offset = delivery.next_offset()
        return offset is not None and offset < self.partition.log.bound(self.rules.upto)

    def look_ahead(self, now_ms: int) -> None:
        """Open batches that nobody was offered yet, for who counts what is delayed in them; only so many at a time."""
        delivery = self.current()
        if delivery is None or not delivery.rules.opens_batches:
            return
        for _ in range(LOOKS_AHEAD_MAX):
            offset = max(delivery.contents.looked_to, delivery.start_offset)
            read = None if offset >= delivery.ceiling else self._look(offset, BYTES_MAX, Wanted(HEADERS_MAX))
            if read is None:
                break
            _open(self._world, delivery, read, now_ms)
        self._arm(delivery)

    def _look(self, offset: int, max_bytes: int, wanted: Wanted, *, seeks_others: bool = False) -> Read | None:
        log = self.partition.log
        # Behind the bound: a log that was cut by an unclean election ends below what is settled.
        if offset >= log.bound(upto := self.rules.upto):
            return None
        return look(log, offset, max_bytes, upto, *_needed(self.delivery, offset, wanted, seeks_others))

    def settle(self, member: str, said: list[Said], now_ms: int, answer: Answer) -> None:
        """`answer` is called once, at once or later."""
        if self.refusal is not None:
            answer(self.refusal)
            return
        delivery = self.current()
        if delivery is None:
            answer(InvalidRecordState("nobody holds anything: the share-partition is being loaded"))
            return
        if not self.rules.may_renew and any(word.verb is Verb.RENEW for word in said):
            answer(InvalidRecordState("share.renew.acknowledge.enable is false for this group"))
            return
        if len(said) > delivery.held_offsets + 1 and said[-1].end > delivery.start_offset:
            answer(InvalidRecordState(f"{len(said)} ranges, and {delivery.held_offsets} offsets are held"))
            return
        delivery.settle(member, said, now_ms, answer)
        self._soon(self)

    def untake(self, acquired: list[Acquired]) -> None:
        """The reply with these records was never written: they were not delivered."""
        delivery = self.current()
        if delivery is not None and not self.closed and Receipts(delivery).untake(acquired):
            self.on_change(self)
            self.pump()

    def release(self, member: str) -> None:
        """Its session is over."""
        if self.delivery is not None and not self.closed:
            self._tell_time(self.delivery)
            if self.delivery.release_owner(member):
                self.on_change(self)
            self.pump()

    def current(self) -> Delivery | None:
        """With the group's rules and the log's start as they are now."""
        delivery = self.delivery
        if delivery is not None:
            self.rules = self._rules(self.key.group_id)
            before, now = delivery.rules, self.rules.delivery
            if (before.order, before.delays) != (now.order, now.delays):
                self.close(NotLeaderOrFollower("the group's order of keys or its delays were changed: fetch again"))
                return None
            delivery.rules = now
            self._tell_time(delivery)
            delivery.on_log_start(self.partition.log.start_offset)
        return delivery

    def _tell_time(self, delivery: Delivery) -> None:
        """Letters say when a record failed, by the clock on the wall."""
        delivery.letters.deaths.wall_ms = self._world.clock.wall_ms()

    # --- the store, and time ---

    def pump(self) -> None:
        """Write what is to be written, and wake up when a lease ends."""
        delivery = self.delivery
        if delivery is None or self.closed:
            return
        now_ms = self._world.clock.monotonic_ms()
        update = delivery.next_write(now_ms, self._world.clock.wall_ms())
        if update is not None:
            state_epoch = delivery.durable.state_epoch
            self._store.write(self.key, state_epoch, self.leader_epoch, update, now_ms, self._on_written)
        self._arm(delivery)
        self.letters.wake()

    def _on_written(self, error: ProtocolError | None) -> None:
        delivery = self.delivery
        if delivery is None or self.closed:
            return
        now_ms = self._world.clock.monotonic_ms()
        if isinstance(error, SUPERSEDED):
            self.close(NotLeaderOrFollower(f"the store says: {error}"))
            return
        if error is None:
            delivery.on_written(now_ms)
        else:
            delivery.on_failed(error, now_ms)
        # Something may be available again, or the start has moved and more fits behind it.
        self.on_change(self)
        if error is None:
            self.pump()
        else:
            self._world.timers.at(now_ms + PAUSE_MS, self.pump)
            self._arm(delivery)

    def _arm(self, delivery: Delivery) -> None:
        deadline_ms, timer = delivery.deadline_ms, self._timer
        if timer is not None and timer.armed:
            if deadline_ms is not None and timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._timer = None if deadline_ms is None else self._world.timers.at(deadline_ms, self._on_time)

    def _on_time(self) -> None:
        if (delivery := self.delivery) is None or self.closed:
            return
        self._tell_time(delivery)
        if delivery.on_time(self._world.clock.monotonic_ms()):
            self.on_change(self)
        self.pump()


def _open(world: World, delivery: Delivery, read: Read, now_ms: int) -> None:
    if delivery.rules.opens_batches:
        open_batches(delivery, read, now_ms, world.clock.wall_ms(), world.limits.decompressed_bytes_max)


def _needed(
    delivery: Delivery | None, offset: int, wanted: Wanted, seeks_others: bool
) -> tuple[int, Callable[[int], bool] | None]:
    """How many batches to look at, and whether so much as is wanted can be taken up to the end of one."""
    if seeks_others and delivery is not None:
        return _enough_of_others(delivery, offset, wanted)
    strict = wanted.mode is AcquireMode.RECORD_LIMIT
    # Each batch has a record at least: more of them would be read for nothing.
    headers_max = min(wanted.records, HEADERS_MAX) if strict else HEADERS_MAX
    if delivery is None or delivery.rules.order is not Order.NONE:
        return headers_max, None  # which records are blocked nobody knows before their batches are opened
    live, left, begin = delivery.live, min(wanted.records, delivery.room), offset

    def is_enough(end: int) -> bool:
        nonlocal begin, left
        left -= live.count(AVAILABLE, begin, end)
        begin = end
        return left <= 0

    return headers_max, is_enough


def _enough_of_others(delivery: Delivery, offset: int, wanted: Wanted) -> tuple[int, Callable[[int], bool] | None]:
    """Past records of noisy tenants, which may be many."""
    if offset >= delivery.looked_to:
        return HEADERS_MAX, None
    left, begin = min(wanted.records, delivery.room), offset

    def is_enough(end: int) -> bool:
        nonlocal begin, left
        left -= delivery.tenants.count_others(delivery.live, begin, end)
        begin = end
        return left <= 0 or end >= offset + OTHERS_WITHIN

    return HEADERS_MAX, is_enough


def _next_offset(delivery: Delivery, upto: int, number: int) -> tuple[int | None, bool]:
    """From where a fetch reads on, for the so many-th time; and whether for records of tenants that are not noisy."""
    if number >= FAIR_LOOKS_MAX:
        return delivery.next_offset(), False
    offset = delivery.next_offset(upto)
    return offset, offset is not None and delivery.seeks_others(offset)
