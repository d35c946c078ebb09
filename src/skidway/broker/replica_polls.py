"""Followers that fetch from this node: what each of them follows, and what its fetch waits for.

A fetch speaks about every partition of its session, and thousands may be in one. So work follows what happens, not how
much there is: a fetch looks only at the partitions it names and at those that are *ready*, because something happened
in them since they were last found to have nothing new. What it says about all the others, that they are still where
they were, is noted when it matters: `wake` tells the leader when a follower last asked for more than there was.

At most one fetch of a session waits. A partition has one target for each follower: a new session takes it over and ends
the one that had it, so what a follower left behind, whatever happened to it, stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skidway.broker.damaged import refuse_damaged
from skidway.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, next_epoch
from skidway.errors import (
    DamagedLog,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    ProtocolError,
)
from skidway.limits import INT32_MAX
from skidway.wire.schema.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition
    from skidway.runtime.timers import Timer

NO_RECORDS = b""
SILENT_MS_MAX = 120_000
"""A session that nobody used for so long is forgotten."""
Found = list[tuple["Target", PartitionData]]


class Target:
    """One partition as one follower fetches it."""

    __slots__ = (
        "at_end",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "session",
        "start_offset",
        "told_high_watermark",
        "told_start_offset",
        "topic_id",
    )

    def __init__(self, session: Session, topic_id: bytes, asked: FetchPartition) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = asked.partition
        self.leader_epoch = asked.current_leader_epoch
        self.partition: Partition | None = None
        """Where it is told of what happens."""
        self.forget_what_was_told()
        self.update(asked)

    def forget_what_was_told(self) -> None:
        """The follower may have taken no notice of it."""
        self.told_high_watermark = -1
        self.told_start_offset = -1

    def update(self, asked: FetchPartition) -> None:
        if asked.current_leader_epoch != self.leader_epoch:
            # An answer that it got in the meantime was to somebody it is not any more.
            self.forget_what_was_told()
        self.offset = asked.fetch_offset
        self.start_offset = asked.log_start_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.at_end = False
        """Whether there was nothing to read when the follower last asked."""


class Waiting:
    """A fetch that found too little."""

    __slots__ = ("call", "max_bytes", "missing_bytes", "timer")

    def __init__(self, call: Call, max_bytes: int, missing_bytes: int) -> None:
        self.call = call
        self.max_bytes = max_bytes
        self.missing_bytes = missing_bytes
        self.timer: Timer | None = None


class Session:
    __slots__ = ("epoch", "fetched_ms", "id", "ready", "replica_id", "standing", "targets", "waiting")

    def __init__(self, session_id: int, replica_id: int) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.epoch = 1
        self.fetched_ms = 0
        self.standing: tuple[int, int | None] = (-1, None)
        """The follower's broker epoch, as it says and as the metadata says if it may join in-sync sets."""
        self.targets: dict[tuple[bytes, int], Target] = {}
        # A dict as an ordered set; what got bytes goes to its end, so that a busy partition does not starve others.
        self.ready: dict[Target, None] = {}
        self.waiting: Waiting | None = None


class ReplicaPolls:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.sessions: dict[int, Session] = {}
        self._watchers: dict[Partition, dict[int, Target]] = {}
        """By partition, by follower."""
        self._woken: dict[Session, None] = {}
        self._target_count = 0
        """Of all sessions together."""

    # --- a fetch ---

    def fetch(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """The response, or None: then it comes when there is enough, or at the deadline."""
        try:
            session = self._session(request)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        if session.waiting is not None:
            self._finish(session)
        node = self.node
        session.fetched_ms = call.now_ms
        standing = (request.replica_state.replica_epoch, node.hosting.eligible.get(session.replica_id))
        if standing != session.standing:
            session.standing = standing
            session.ready.update(dict.fromkeys(session.targets.values()))
        max_bytes = min(request.max_bytes, node.limits.fetch_bytes_max)
        found, found_bytes, urgent = self._look(session, max_bytes, counts=True)
        wait_ms = min(request.max_wait_ms, node.limits.fetch_wait_ms_max)
        if session.ready and (held_ms := node.hosting.leader_throttle.wait_ms(call.now_ms)):
            wait_ms = min(wait_ms, held_ms)
        if urgent or found_bytes >= request.min_bytes or wait_ms <= 0 or not session.targets:
            return self._response(session, found)
        waiting = session.waiting = Waiting(call, max_bytes, request.min_bytes - found_bytes)
        waiting.timer = node.timers.at(call.now_ms + wait_ms, lambda: self._finish(session))
        call.on_gone = lambda: self._give_up(session, waiting)
        return None

    def _session(self, request: FetchRequest) -> Session:
        replica_id = request.replica_state.replica_id
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            old = self.sessions.get(request.session_id)
            if old is not None and old.replica_id == replica_id:
                self._close(old)
            lasts = request.session_epoch == INITIAL_EPOCH and self._has_room(request)
            session = Session(self._new_id() if lasts else NO_SESSION, replica_id)
            if lasts:
                self.sessions[session.id] = session
        else:
            session = self.sessions.get(request.session_id)  # type: ignore[assignment]
            if session is None or session.replica_id != replica_id:
                raise FetchSessionIdNotFound()
            if session.epoch != request.session_epoch:
                raise InvalidFetchSessionEpoch()
            if not self._has_room(request):
                self._close(session)
                raise FetchSessionIdNotFound()
            session.epoch = next_epoch(session.epoch)
        self._update(session, request)
        return session

    def _has_room(self, request: FetchRequest) -> bool:
        limits = self.node.limits
        named = sum(len(topic.partitions) for topic in request.topics)
        return (
            len(self.sessions) < limits.fetch_sessions_max
            and self._target_count + named <= limits.fetch_session_partitions_max
        )

    def _update(self, session: Session, request: FetchRequest) -> None:
        targets, ready = session.targets, session.ready
        for topic in request.topics:
            topic_id = topic.topic_id
            for asked in topic.partitions:
                key = (topic_id, asked.partition)
                target = targets.get(key)
                if target is None:
                    target = targets[key] = Target(session, topic_id, asked)
                    self._target_count += 1
                else:
                    target.update(asked)
                ready[target] = None
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                target = targets.get((forgotten.topic_id, index))
                if target is not None:
                    self._drop(target)

    def _look(self, session: Session, max_bytes: int, *, counts: bool) -> tuple[Found, int, bool]:
        """What there is to say, how many bytes of it are records, and whether it should not wait.

        With `counts` the follower's positions count for the leaders: once for each fetch, not again when it is woken.
        """
        found: Found = []
        found_bytes, urgent = 0, False
        for target in list(session.ready):
            try:
                data = self._look_at(target, max_bytes - found_bytes, counts=counts, min_one=found_bytes == 0)
            except ProtocolError as error:
                if isinstance(error, DamagedLog):
                    damaged = self.node.partitions.find_by_id(target.topic_id, target.index)
                    self.node.damaged.found(damaged, str(error))
                found.append((target, self._refusal(target, error)))
                urgent = True
                continue
            if data is None:
                if counts:
                    # Otherwise the next fetch looks again: that the follower is at the end may mean more by now.
                    del session.ready[target]
                continue
            found.append((target, data))
            if data.records is not NO_RECORDS:
                found_bytes += len(data.records)  # type: ignore[arg-type]
            elif data.diverging_epoch.epoch >= 0:
                urgent = True
        return found, found_bytes, urgent

    def _look_at(self, target: Target, room: int, *, counts: bool, min_one: bool) -> PartitionData | None:
        """None: nothing new."""
        partition = self.node.partitions.find_by_id(target.topic_id, target.index)
        partition.leader.check_epoch(target.leader_epoch)
        log, offset = partition.log, target.offset
        if counts:
            diverging = partition.divergence(target.last_fetched_epoch, offset)
            if diverging is not None:
                # Its log is another one: where it ends says nothing.
                data = PartitionData(target.index, 0, log.high_watermark, log.high_watermark, log.start_offset)
                data.diverging_epoch = EpochEndOffset(*diverging)
                data.records = NO_RECORDS
                return data
            self._count(target, partition)
        records = None
        if room > 0 and not (partition.is_throttled_as_leader and self._holds_back(target, partition)):
            records = log.read(offset, min(target.max_bytes, room), committed=False, min_one=min_one)
            if records is not None:
                if partition.is_throttled_as_leader:
                    self._charge(target, partition, len(records))
                follower = partition.leader.follower(target.session.replica_id)
                if follower is not None:
                    if counts and follower.sent_offset == offset:
                        refuse_damaged(partition, records, offset)
                    follower.sent_offset = offset
        target.at_end = offset >= log.end_offset
        high_watermark, start_offset = log.high_watermark, log.start_offset
        data = PartitionData(target.index, 0, high_watermark, high_watermark, start_offset)
        data.records = NO_RECORDS if records is None else records
        return None if target.at_end and not _is_news(target, data) else data

    def _holds_back(self, target: Target, partition: Partition) -> bool:
        """Whether it has to wait its turn; never who is in sync: it must not fall out of that."""
        if target.session.replica_id in partition.leader.in_sync:
            return False
        return self.node.hosting.leader_throttle.wait_ms(self.node.clock.monotonic_ms()) > 0

    def _charge(self, target: Target, partition: Partition, size: int) -> None:
        if target.session.replica_id not in partition.leader.in_sync:
            self.node.hosting.leader_throttle.took(size, self.node.clock.monotonic_ms())

    def _refusal(self, target: Target, error: ProtocolError) -> PartitionData:
        data = PartitionData(target.index, error.code, -1)
        data.records = NO_RECORDS
        if isinstance(error, OffsetOutOfRange):
            # Where it may begin anew, so that it need not ask.
            log = self.node.partitions.find_by_id(target.topic_id, target.index).log
            data.high_watermark, data.log_start_offset = log.high_watermark, log.start_offset
        return data

    def _count(self, target: Target, partition: Partition) -> None:
        session, node = target.session, self.node
        partition.on_follower_fetch(
            session.replica_id, session.standing[0], target.offset, target.start_offset, session.fetched_ms
        )
        if partition.leader.proposal is not None:
            node.in_sync.propose(partition)
        if node.deletions:
            node.deletions.wake(partition, partition.low_watermark)
        if target.partition is not partition:
            self._watch(target, partition)

    def _response(self, session: Session, found: Found) -> FetchResponse:
        topics: list[FetchableTopicResponse] = []
        topic_id: bytes | None = None
        ready = session.ready
        for target, data in found:
            if not _is_news(target, data):
                continue
            if data.error_code != 0 or data.diverging_epoch.epoch >= 0:
                target.forget_what_was_told()
            else:
                target.told_high_watermark = data.high_watermark
                target.told_start_offset = data.log_start_offset
            if data.records is not NO_RECORDS and target in ready:
                del ready[target]
                ready[target] = None
            if target.topic_id != topic_id:
                topic_id = target.topic_id
                topics.append(FetchableTopicResponse(topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(data)
        if session.id == NO_SESSION:
            self._close(session)
        return FetchResponse(error_code=0, session_id=session.id, responses=topics)

    # --- waiting ---

    def _finish(self, session: Session) -> None:
        """Answer the fetch that waits, with whatever there is."""
        waiting = session.waiting
        if waiting is None:
            return
        self._give_up(session, waiting)
        try:
            response = self._response(session, self._look(session, waiting.max_bytes, counts=False)[0])
        except Exception as bug:
            waiting.call.fail(bug)
            return
        waiting.call.reply(response)

    def _give_up(self, session: Session, waiting: Waiting) -> None:
        if session.waiting is waiting:
            session.waiting = None
        if waiting.timer is not None:
            waiting.timer.cancel()
        if session.id == NO_SESSION and waiting.call.connection.gone:
            self._close(session)

    def wake(self, grown: Iterable[tuple[Partition, int]]) -> None:
        """These partitions have so many bytes more than at the last call."""
        for partition, added_bytes in grown:
            for target in self._watchers.get(partition, {}).values():
                session = target.session
                if target.at_end:
                    target.at_end = False
                    follower = partition.leader.follower(session.replica_id)
                    if follower is not None:
                        follower.was_at_end(session.fetched_ms)
                session.ready[target] = None
                if session.waiting is not None:
                    session.waiting.missing_bytes -= added_bytes
                    if session.waiting.missing_bytes <= 0:
                        self._woken[session] = None
        while self._woken:
            self._finish(self._woken.popitem()[0])

    def note(self, partition: Partition) -> None:
        """Its watermark or its in-sync set changed: the next fetches look at it, and count again. Where followers have
        readers, those that wait are answered at the end of the turn."""
        watchers = self._watchers.get(partition)
        if watchers is None:
            return
        hasty = partition.read_elsewhere_until_ms > self.node.clock.monotonic_ms()
        for target in watchers.values():
            session = target.session
            session.ready[target] = None
            if hasty and target.told_high_watermark < partition.log.high_watermark:
                self._woken[session] = None

    def disturb(self, partition: Partition) -> None:
        """It is gone, failed, or has another leader: whoever waits is told at once."""
        for target in list(self._watchers.get(partition, {}).values()):
            target.session.ready[target] = None
            self._finish(target.session)

    def forget(self, partition: Partition) -> None:
        for target in self._watchers.pop(partition, {}).values():
            target.partition = None
            target.session.ready[target] = None
            self._finish(target.session)

    def expire(self, now_ms: int) -> None:
        """Forget the sessions of followers that do not come any more."""
        for session in list(self.sessions.values()):
            if session.waiting is None and now_ms - session.fetched_ms > SILENT_MS_MAX:
                self._close(session)

    # --- who watches what ---

    def _watch(self, target: Target, partition: Partition) -> None:
        self._unwatch(target)
        watchers = self._watchers.setdefault(partition, {})
        left_behind = watchers.get(target.session.replica_id)
        if left_behind is not None:
            # As a whole: if its follower still uses it, because this fetch was sent long ago and came late, it has to
            # hear that it has none any more. It would wait for ever for what is not in its session.
            self._close(left_behind.session)
            self._finish(left_behind.session)
            watchers = self._watchers.setdefault(partition, {})
        watchers[target.session.replica_id] = target
        target.partition = partition
        partition.watched = True

    def _unwatch(self, target: Target) -> None:
        partition = target.partition
        if partition is None:
            return
        target.partition = None
        watchers = self._watchers.get(partition, {})
        if watchers.get(target.session.replica_id) is target:
            del watchers[target.session.replica_id]
            if not watchers:
                self._watchers.pop(partition, None)
                partition.watched = False

    def _drop(self, target: Target) -> None:
        session = target.session
        self._unwatch(target)
        session.ready.pop(target, None)
        if session.targets.pop((target.topic_id, target.index), None) is not None:
            self._target_count -= 1

    def _close(self, session: Session) -> None:
        if session.id != NO_SESSION:
            self.sessions.pop(session.id, None)
        for target in list(session.targets.values()):
            self._drop(target)

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self.node.random.randrange(INT32_MAX)
            if session_id not in self.sessions:
                return session_id


def _is_news(target: Target, data: PartitionData) -> bool:
    return (
        data.records is not NO_RECORDS
        or data.error_code != 0
        or data.high_watermark != target.told_high_watermark
        or data.log_start_offset != target.told_start_offset
        or data.diverging_epoch.epoch >= 0
    )
