"""Followers that fetch from this node: what each of them follows, and what its fetch waits for.

A fetch speaks about every partition of its session, and thousands may be in one. So work follows what happens, not how
much there is: a fetch looks only at the partitions it names and at those that are *ready* (the row of its session),
because something happened in them since they were last found to have nothing new. What it says about all the others,
that they are still where they were, is noted when it matters: `wake` tells the leader when a follower last asked for
more than there was.

A fetch that has to look at many partitions does so in steps: what happens in a partition meanwhile makes it ready
again, and a session that is closed meanwhile ends the fetch.

At most one fetch of a session waits. A partition has one target for each follower: a new session takes it over and ends
the one that had it, so what a follower left behind, whatever happened to it, stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from skidway.broker.partitions.damaged import refuse_damaged
from skidway.broker.reads.poll import NO_RECORDS, TARGETS_AT_ONCE, FetchPoll, Reads, is_news
from skidway.broker.reads.sessions import (
    NO_SESSION,
    Asked,
    AskedByFetch,
    FetchTarget,
    Session,
    Sessions,
    TargetKey,
)
from skidway.errors import FetchSessionIdNotFound, OffsetOutOfRange, ProtocolError
from skidway.log.bounds import Bound
from skidway.ports import Clock, Random
from skidway.replica.throttle import Throttle
from skidway.runtime.parking import OffsetParking
from skidway.steps import Steps, at_once
from skidway.wire.schema.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.partition import Partition


class FollowerTarget(FetchTarget):
    """One partition as one follower fetches it."""

    __slots__ = ("at_end", "partition", "session")

    def __init__(self, session: FollowerSession, key: TargetKey, asked: FetchPartition) -> None:
        super().__init__(key, asked)
        self.session = session
        self.partition: Partition | None = None
        """Where it is told of what happens."""
        self.at_end = False
        """Whether there was nothing to read when the follower last asked."""

    def update(self, asked: FetchPartition) -> None:
        if asked.current_leader_epoch != self.asked.current_leader_epoch:
            # A reply already in flight carries the old epoch, and the follower will ignore it.
            self.told_high_watermark = self.told_start_offset = -1
        self.asked = asked
        self.at_end = False


class FollowerSession(Session[FollowerTarget]):
    """The owner is the follower; the row is what is ready."""

    __slots__ = ("standing", "unwatch", "waiting")

    def __init__(
        self, unwatch: Callable[[FollowerTarget], None], session_id: int, owner: int, by_id: bool, used_ms: int
    ) -> None:
        super().__init__(session_id, owner, by_id, used_ms)
        self.row = {}
        self.unwatch = unwatch
        self.standing: tuple[int, int | None] = (-1, None)
        """The follower's broker epoch, as it says and as the metadata says if it may join in-sync sets."""
        self.waiting: FollowerPoll | None = None

    def new_target(self, key: TargetKey, asked: Any) -> FollowerTarget:
        return FollowerTarget(self, key, asked)

    def on_dropped(self, target: FollowerTarget) -> None:
        self.unwatch(target)

    def is_idle(self, now_ms: int) -> bool:
        return self.waiting is None and super().is_idle(now_ms)


class FollowerFetches:
    def __init__(
        self,
        reads: Reads,
        clock: Clock,
        random: Random,
        eligible: Mapping[int, int],
        throttle: Throttle,
        deletions: OffsetParking[Partition],
        propose: Callable[[Partition], None],
    ) -> None:
        """`eligible` are broker epochs of those that may join in-sync sets, `throttle` is for followers that are in
        none; `propose` carries a leader's proposal to the controller."""
        self.reads = reads
        self.clock = clock
        self.eligible = eligible
        self.throttle = throttle
        self.deletions = deletions
        self.propose = propose
        new_session = partial(FollowerSession, self._unwatch)
        self.sessions: Sessions[FollowerSession] = Sessions(new_session, reads.limits, random, self._on_closed)
        self._watchers: dict[Partition, dict[int, FollowerTarget]] = {}
        """By partition, by follower."""
        self.woken: dict[FollowerSession, None] = {}
        """Whose fetches are answered by the next `wake`."""

    # --- a fetch ---

    def fetch(self, call: Call, request: FetchRequest) -> FetchResponse | Steps[FetchResponse | None] | None:
        """The response, or None: then it comes when there is enough, or at the deadline. In steps, if it is large."""
        asked = AskedByFetch(request, call.version)
        follower = request.replica_state
        try:
            session = self.sessions.session_of(asked, follower.replica_id, call.now_ms)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        standing = (follower.replica_epoch, self.eligible.get(follower.replica_id))
        looked_at = session.row if session.standing == standing else session.targets
        kind = FollowerPoll if session.id != NO_SESSION else OnlyPoll
        poll = kind(self, call, request, session)
        return poll.answer(self._prepare(session, asked, standing), asked.named + len(looked_at))

    def _prepare(self, session: FollowerSession, asked: Asked, standing: tuple[int, int | None]) -> Steps[None]:
        if asked.named or asked.forgotten:
            yield from self.sessions.update(session, asked)
        if session.waiting is not None:
            self.finish(session)
        if standing != session.standing:
            session.standing = standing
            session.row.update(session.targets)

    # --- what happens ---

    def finish(self, session: FollowerSession) -> None:
        """Answer the fetch that waits, with whatever there is."""
        poll = session.waiting
        if poll is not None and poll.parked is not None:
            self.reads.parking.finish(poll.parked)

    def wake(self, grown: Iterable[tuple[Partition, int]]) -> None:
        """These partitions have so many bytes more than at the last call."""
        for partition, added_bytes in grown:
            for target in self._watchers.get(partition, {}).values():
                session = target.session
                if target.at_end:
                    target.at_end = False
                    follower = partition.leader.follower(session.owner)
                    if follower is not None:
                        follower.was_at_end(session.used_ms)
                session.row[target.key] = target
                if session.waiting is not None and (parked := session.waiting.parked) is not None:
                    parked.missing_bytes -= added_bytes
                    if parked.missing_bytes <= 0:
                        self.woken[session] = None
        while self.woken:
            poll = self.woken.popitem()[0].waiting
            if poll is not None and poll.parked is not None:
                self.reads.parking.finish(poll.parked)

    def note(self, partition: Partition) -> None:
        """Its watermark or its in-sync set changed: the next fetches look at it, and count again. Where followers have
        readers, those that wait are answered at the end of the turn."""
        watchers = self._watchers.get(partition)
        if watchers is None:
            return
        hasty = partition.read_elsewhere_until_ms > self.clock.monotonic_ms()
        for target in watchers.values():
            session = target.session
            session.row[target.key] = target
            if hasty and target.told_high_watermark < partition.log.high_watermark:
                self.woken[session] = None

    def disturb(self, partition: Partition) -> None:
        """It is gone, failed, or has another leader: whoever waits is told at once."""
        for target in list(self._watchers.get(partition, {}).values()):
            target.session.row[target.key] = target
            self.finish(target.session)

    def forget(self, partition: Partition) -> None:
        for target in self._watchers.pop(partition, {}).values():
            target.partition = None
            target.session.row[target.key] = target
            self.finish(target.session)

    def expire(self, now_ms: int) -> None:
        """Forget the sessions of followers that do not come any more."""
        self.sessions.close_idle(now_ms)

    # --- who watches what ---

    def watch(self, target: FollowerTarget, partition: Partition) -> None:
        self._unwatch(target)
        watchers = self._watchers.setdefault(partition, {})
        left_behind = watchers.get(target.session.owner)
        if left_behind is not None and not left_behind.session.closed:
            # As a whole: if its follower still uses it, because this fetch was sent long ago and came late, it has to
            # hear that it has none any more. It would wait for ever for what is not in its session.
            self.sessions.close(left_behind.session)
            self.finish(left_behind.session)
            watchers = self._watchers.setdefault(partition, {})
        watchers[target.session.owner] = target
        target.partition = partition
        partition.watched = True

    def _unwatch(self, target: FollowerTarget) -> None:
        partition = target.partition
        if partition is None:
            return
        target.partition = None
        watchers = self._watchers.get(partition, {})
        if watchers.get(target.session.owner) is target:
            del watchers[target.session.owner]
            if not watchers:
                self._watchers.pop(partition, None)
                partition.watched = False

    def _on_closed(self, targets: list[FollowerTarget]) -> None:
        if len(targets) <= TARGETS_AT_ONCE:
            at_once(self._unwatch_all(targets))
        else:
            self.reads.slices.begin(self._unwatch_all(targets), _nothing_more, _report)

    def _unwatch_all(self, targets: list[FollowerTarget]) -> Steps[None]:
        for target in targets:
            self._unwatch(target)
            yield None


class FollowerPoll(FetchPoll[FollowerTarget]):
    """One fetch of a follower. Its positions count for the leaders: once, not again when it was woken."""

    __slots__ = ()
    fetches: FollowerFetches
    session: FollowerSession

    def targets(self) -> list[FollowerTarget]:
        return list(self.session.row.values())

    def look_at(self, target: FollowerTarget) -> PartitionData | None:
        row, key = self.session.row, target.key
        if key not in row or row[key] is not target:
            return None  # forgotten meanwhile
        partition, asked = self.find(target.topic, target.index), target.asked
        partition.leader.check_epoch(asked.current_leader_epoch)
        log, offset = partition.log, asked.fetch_offset
        counts = self.parked is None
        if counts:
            diverging = partition.divergence(asked.last_fetched_epoch, offset)
            if diverging is not None:
                # Its log is another one: where it ends says nothing.
                data = PartitionData(target.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset)
                data.diverging_epoch = EpochEndOffset(*diverging)
                data.records = NO_RECORDS
                self.urgent = True
                return data
            self._count(target, partition)
        data = PartitionData(target.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset)
        data.records = NO_RECORDS
        target.at_end = offset == log.end_offset
        if target.at_end:
            if is_news(target, data):
                return data
            if counts:
                # Otherwise the next fetch looks again: that the follower is at the end may mean more by now.
                del self.session.row[key]
            return None
        room = self.max_bytes - self.bytes_found
        if room > 0 and not (partition.is_throttled_as_leader and self._holds_back(partition)):
            records = log.read(offset, min(asked.partition_max_bytes, room), Bound.END, min_one=self.bytes_found == 0)
            if records is not None:
                if partition.is_throttled_as_leader:
                    self._charge(partition, records.length)
                follower = partition.leader.follower(self.session.owner)
                if follower is not None:
                    if counts and follower.sent_offset == offset:
                        refuse_damaged(partition, records, offset)
                    follower.sent_offset = offset
                data.records = records
                self.bytes_found += records.length
                partition.traffic.bytes_to_followers += records.length
        return data

    def _count(self, target: FollowerTarget, partition: Partition) -> None:
        session, fetches, asked = self.session, self.fetches, target.asked
        partition.on_follower_fetch(
            session.owner, session.standing[0], asked.fetch_offset, asked.log_start_offset, session.used_ms
        )
        if partition.leader.proposal is not None:
            fetches.propose(partition)
        if fetches.deletions:
            fetches.deletions.wake(partition, partition.low_watermark)
        if target.partition is not partition:
            fetches.watch(target, partition)

    def _charge(self, partition: Partition, size: int) -> None:
        if self.session.owner not in partition.leader.in_sync:
            self.fetches.throttle.took(size, self.fetches.clock.monotonic_ms())

    def _holds_back(self, partition: Partition) -> bool:
        """Whether it has to wait its turn; never who is in sync: it must not fall out of that."""
        if self.session.owner in partition.leader.in_sync:
            return False
        return self.fetches.throttle.wait_ms(self.fetches.clock.monotonic_ms()) > 0

    def refusal(self, target: FollowerTarget, error: ProtocolError) -> PartitionData:
        data = PartitionData(target.index, error.code, -1)
        data.records = NO_RECORDS
        if isinstance(error, OffsetOutOfRange):
            # Where it may begin anew, so that it need not ask.
            log = self.find(target.topic, target.index).log
            data.high_watermark, data.log_start_offset = log.high_watermark, log.start_offset
        return data

    def must_wait(self) -> bool:
        session = self.session
        if session.closed:
            raise FetchSessionIdNotFound()
        if session.row and (held_ms := self.fetches.throttle.wait_ms(self.call.now_ms)):
            self.wait_ms = min(self.wait_ms, held_ms)
        return not self.urgent and self.bytes_found < self.min_bytes and self.wait_ms > 0 and bool(session.targets)

    def awaited(self) -> Sequence[Partition]:
        """Watchers know what happens in thousands of partitions; a fetch names none."""
        return ()

    def on_parked(self) -> None:
        session = self.session
        if session.waiting is not None:
            self.fetches.finish(session)
        session.waiting = self

    def on_resumed(self) -> None:
        if self.session.waiting is self:
            self.session.waiting = None

    def on_abandoned(self) -> None:
        self.on_resumed()


class OnlyPoll(FollowerPoll):
    """A fetch without a session: what it watched is forgotten with it."""

    __slots__ = ()

    def on_abandoned(self) -> None:
        super().on_abandoned()
        self.fetches.sessions.close(self.session)

    def reply(self) -> Steps[FetchResponse]:
        response = yield from super().reply()
        self.fetches.sessions.close(self.session)
        return response


def _nothing_more(_: None) -> None:
    pass


def _report(bug: Exception) -> None:
    raise bug
