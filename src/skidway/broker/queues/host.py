"""Queues on this node: messages taken, settled and counted in the partitions that it leads.

A client that has the offset and the delivery's number holds a message; which client that is, no leader knows. A queue
that nobody has used for a while is forgotten, and loaded again when somebody does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from skidway.broker.queues.sending import Sends
from skidway.broker.shares.fetches import ShareFetches
from skidway.broker.shares.share_partition import SharePartition, Taken
from skidway.broker.world import World
from skidway.errors import InvalidRequest, OffsetOutOfRange, ProtocolError, UnknownTopicId
from skidway.ports import FileSlice
from skidway.shares.acquiring import Acquired, Wanted
from skidway.shares.queue_groups import group_of
from skidway.shares.receipts import Receipts, Standing
from skidway.shares.records import StateBatch
from skidway.shares.sessions import Place
from skidway.shares.states import (
    ARCHIVING,
    AVAILABLE,
    BLOCKED,
    DELAYED,
    LEASED,
    LOCK_MS_MAX,
    SETTLING,
    AcquireMode,
    HeldUp,
    Verb,
)

OWNER = "queue"
ANY_DELIVERY = 0
"""In the place of a delivery's number: whichever delivery there is."""
UNTAKE = 5
"""Beside the verbs of share groups: the delivery never reached anybody, and does not count."""
KEPT_MS = 60_000
"""So long a queue that nobody uses is kept in memory."""
FIRST_TIMES_MAX = 200_000
OPEN = (AVAILABLE, BLOCKED, LEASED, DELAYED, SETTLING, ARCHIVING)

Answer = Callable[[ProtocolError | None], None]


class Told(NamedTuple):
    records: FileSlice
    acquired: list[Acquired]
    first_received_ms: list[int]
    """For each offset, in order: when it was first delivered, as far as this leader knows."""


class Counted(NamedTuple):
    visible: int
    blocked: int
    """Of those: they wait for an earlier message of their group."""
    in_flight: int
    delayed: int
    dead: int
    """They wait until their letters are written."""
    shown: list[StateBatch]
    """The first that are not settled."""
    letter_trouble: str
    """Why letters cannot be written; empty: they can."""
    held_up: HeldUp
    start_offset: int


class Queues:
    __slots__ = ("_first_times", "_sweeping", "_used_ms", "_world", "partitions", "sends", "share_fetches")

    def __init__(self, world: World, share_fetches: ShareFetches) -> None:
        """`share_fetches`: share groups, whose partitions queues are made of."""
        self._world = world
        self.share_fetches = share_fetches
        self.partitions = share_fetches.partitions
        self.sends = Sends(world)
        """To FIFO queues."""
        self._used_ms: dict[str, int] = {}
        self._sweeping = False
        self._first_times: dict[SharePartition, dict[int, int]] = {}

    def open(self, topic: str | None, place: Place, now_ms: int) -> SharePartition:
        """Raises why this node does not have it. The topic's name, None if it is not known here."""
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {place[0].hex()}")
        group = group_of(topic)
        share = self.partitions.open(group, place, now_ms)
        self._used_ms[group] = now_ms
        self._sweep_later(now_ms)
        return share

    # --- messages ---

    def take(self, share: SharePartition, count: int, max_bytes: int, lock_ms: int, now_ms: int) -> Taken | None:
        """None: there is nothing now. Raises why there cannot be anything."""
        taken = share.take(
            OWNER, max_bytes, Wanted(count, AcquireMode.RECORD_LIMIT), now_ms, min(max(1, lock_ms), LOCK_MS_MAX)
        )
        if taken is None:
            return None
        share.partition.traffic.bytes_out += taken.records.length
        return taken

    def told(self, share: SharePartition, taken: Taken) -> Told:
        """What the client hears of it, if something is left of it: its leases are stored, if they have to be."""
        acquired = taken.acquired if taken.keep is None else taken.keep.acquired
        return Told(taken.records, acquired, self._first_received(share, acquired))

    def settle(
        self,
        share: SharePartition,
        offset: int,
        count: int,
        verb: int,
        time_ms: int,
        now_ms: int,
        answer: Answer,
        reason: str = "",
    ) -> None:
        """`answer` is called once, at once or later. `time_ms` is the delay of a release, or the new time of a lease.
        The share-partition is loaded. Who has told everything pumps it."""
        delivery = share.current()
        if share.closed or delivery is None:
            answer(share.refusal)
            return
        receipts = Receipts(delivery)
        if not 0 <= offset < share.partition.log.bound(share.rules.upto):
            answer(OffsetOutOfRange(f"there is no message at {offset}"))
            return
        if count == ANY_DELIVERY:
            count = max(1, delivery.live.count_at(offset))
            if receipts.standing(offset, count) is Standing.DONE:
                answer(OffsetOutOfRange("the message is done already: it was deleted, or is among the dead letters"))
                return
        if verb == UNTAKE:
            share.untake([Acquired(offset, offset + 1, count)])
            answer(None)
        elif verb == Verb.RENEW:
            receipts.change(OWNER, offset, count, time_ms, now_ms, answer)
            if not time_ms:
                share.on_change(share)
        elif verb in (Verb.ACCEPT, Verb.RELEASE, Verb.REJECT):
            receipts.settle(offset, count, Verb(verb), now_ms, answer, time_ms, reason)
        else:
            answer(InvalidRequest(f"there is no verb {verb}"))

    def accept_held(
        self, share: SharePartition, first: int, size: int, count: int, now_ms: int, answer: Answer
    ) -> bool:
        """Accept neighbours in one go, if one delivery of them all goes on. False: nothing was done, and each has to be
        settled by itself."""
        delivery = share.current()
        if share.closed or delivery is None or count == ANY_DELIVERY:
            return False
        return Receipts(delivery).accept_held(first, first + size, count, now_ms, answer)

    # --- looking ---

    def count(self, share: SharePartition, shown_max: int, now_ms: int, shown_from: int = 0) -> Counted:
        """The share-partition is loaded."""
        delivery = share.current()
        assert delivery is not None
        share.look_ahead(now_ms)
        if delivery.on_time(now_ms):
            share.on_change(share)
        delivery.contents.refresh(delivery)
        start, end = delivery.start_offset, share.partition.log.bound(share.rules.upto)
        seen_end = min(max(start, delivery.end_offset), max(start, end))
        live = delivery.live
        blocked = live.count(BLOCKED, start, seen_end)
        visible = live.count(AVAILABLE, start, seen_end) + blocked + max(0, end - max(start, delivery.end_offset))
        shown: list[StateBatch] = []
        position = max(start, shown_from)
        while shown_max > 0 and position < end:
            stop = min(live.run_end(position, end), position + shown_max)
            state = live.state_at(position)
            if state in OPEN:
                shown.append(StateBatch(position, stop, state, live.count_at(position)))
                shown_max -= stop - position
                position = stop
            else:
                position = live.run_end(position, end)
        return Counted(
            visible,
            blocked,
            delivery.held_offsets,
            delayed=live.count(DELAYED, start, seen_end),
            dead=live.count(ARCHIVING, start, seen_end),
            shown=shown,
            letter_trouble=share.letters.trouble,
            held_up=delivery.held_up(end),
            start_offset=start,
        )

    def held_up(self, share: SharePartition) -> HeldUp:
        """Why a receive found nothing, if it is not that nothing waits."""
        delivery = share.current()
        return HeldUp.NOT if delivery is None else delivery.held_up(share.partition.log.bound(share.rules.upto))

    def _first_received(self, share: SharePartition, acquired: list[Acquired]) -> list[int]:
        times = self._first_times.setdefault(share, {})
        wall_ms = self._world.clock.wall_ms()
        found = [times.setdefault(offset, wall_ms) for each in acquired for offset in range(each.first, each.end)]
        assert share.delivery is not None
        if len(times) > 2 * share.delivery.held_offsets + 1_000:
            start = share.delivery.start_offset
            kept = {offset: at for offset, at in times.items() if offset >= start}
            self._first_times[share] = kept if len(kept) < FIRST_TIMES_MAX else {}
        return found

    # --- queues that nobody uses ---

    def _sweep_later(self, now_ms: int) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._world.timers.at(now_ms + KEPT_MS, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        now_ms = self._world.clock.monotonic_ms()
        for share in [share for share in self._first_times if share.closed]:
            del self._first_times[share]
        for group, used_ms in list(self._used_ms.items()):
            shares = self.partitions.of_group(group)
            if not shares:
                del self._used_ms[group]
            elif now_ms - used_ms >= KEPT_MS and not any(share.waiters for share in shares):
                self.partitions.forget_group(group)
        if self._used_ms:
            self._sweep_later(now_ms)
