"""The follower's side: what is fetched from one leader node, and what its answers do to the logs here.

A step machine for all partitions that follow the same node. One request is under way at a time: `next_request` makes
it, `on_response` takes the answer (None: there was none), `deadline_ms` says when to ask for a request again although
nothing has happened.

Rules, each of which somebody once broke and lost data by it:

- The offset fetched from is a promise that everything below it is stored as firmly as the topic's `flush` demands. With
  `flush=sync` a partition therefore waits for its sync; the others go on without it if that takes long.
- Every fetch names the epoch of the last record here. Where the leader's log took another way, it answers with the end
  of the newest epoch both may have in common, and the log is cut there; then it is asked again, until they agree. Of an
  answer that tells this nothing else counts, neither records nor the watermark.
- An answer counts only if the partition still follows in the epoch it was asked in, from the offset it was asked for.
- Nothing below the high watermark is cut, unless a leader was elected that may lack committed records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from skidway.errors import CorruptMessage, ErrorCode, FailedCut, ProtocolError, StorageError
from skidway.log import retention
from skidway.log.health import ReadOnly
from skidway.log.log import Log
from skidway.ports import Buffer
from skidway.replica.news import (
    BadBatchFetched,
    CopyBegunAnew,
    CopyDamaged,
    CutMeaningless,
    CutRefused,
    FetchedNotStored,
    FollowerOffline,
    OffsetRefused,
    Remedy,
    ReplicaNews,
    TailCut,
)
from skidway.replica.role import PartitionRole
from skidway.replica.session import FetchSession, Position
from skidway.wire.message import Message
from skidway.wire.schema.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""


class FetchSettings(msgspec.Struct, frozen=True):
    wait_ms: int = 500
    min_bytes: int = 1
    reply_bytes_max: int = 8 << 20
    partition_bytes_max: int = 4 << 20
    sync_patience_ms: int = 10
    """So long a request waits for syncs of what the last one brought; then it goes without those partitions."""
    sync_wait_ms: int = 5
    """And the leader holds such a request back for so long only: the promises of the others must not wait behind it."""
    save_wait_ms: int = 50
    """The same while the start of a log is being saved: who deleted records waits for the request behind it."""
    retry_ms: int = 20
    """A partition or a leader that failed rests for so long, doubled with each failure in a row."""
    retry_ms_max: int = 1000
    corrupt_retry_ms: int = 1000


class Replica(Protocol):
    """What is asked of a partition that follows."""

    topic: str
    topic_id: bytes
    index: int
    log: Log
    role: PartitionRole
    unclean: bool
    """Whether its leader may lack what was committed; put to rest here when the logs agree."""

    @property
    def stored_offset(self) -> int: ...

    def fetched(self, records: Buffer, wall_ms: int) -> None: ...

    def rest_ms(self, fetched_bytes: int, now_ms: int) -> int: ...

    def cut_to(self, offset: int, wall_ms: int) -> None: ...

    def restart_at(self, offset: int, wall_ms: int) -> None: ...

    def advance(self, high_watermark: int) -> None: ...


@dataclass(slots=True, eq=False)
class _Followed:
    replica: Replica
    epoch: int
    """The leader's, in which it follows."""
    failures: int = 0
    told: ReplicaNews | None = None
    """The last trouble with it that was told: each is told once."""


class Fetcher:
    def __init__(
        self,
        node_id: int,
        leader_id: int,
        report: Callable[[ReplicaNews], None],
        settings: FetchSettings | None = None,
    ) -> None:
        self.leader_id = leader_id
        self.on_damaged: Callable[[Replica], None] = lambda replica: None
        """What is here of it cannot be used any more: it is not fetched until it follows anew."""
        self.under_way = False
        self._node_id = node_id
        self._report = report
        self._settings = settings or FetchSettings()
        self._session = FetchSession()
        self._followed: dict[Key, _Followed] = {}
        # Dicts as ordered sets, so that every run is the same.
        self._changed: dict[Key, None] = {}
        """Partitions whose next request may differ from what the session says."""
        self._syncing: dict[Key, None] = {}
        self._unsaved: dict[Key, None] = {}
        """Partitions whose start has moved up, and would not have after a crash: the leader is not told yet."""
        self._moved: list[Replica] = []
        self._resting: dict[Key, int] = {}
        """Until when a partition is not fetched, after a failure."""
        self._lost: dict[Key, None] = {}
        """Partitions whose log the leader's does not continue: they begin anew where that begins."""
        self._lookups: dict[Key, int] = {}
        """Those of them whose beginning was asked for, with the epoch they followed in."""
        self._failures = 0
        self._resume_ms = 0
        """Before that no request goes to this leader."""

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, replica: Replica) -> bool:
        followed = self._followed.get(_key(replica))
        return followed is not None and followed.replica is replica

    # --- which partitions ---

    def follow(self, replica: Replica) -> None:
        """From now on, or in a new epoch."""
        key = _key(replica)
        self._leave(key)
        self._followed[key] = _Followed(replica, replica.role.leader_epoch)
        if replica.log.quarantined:
            self._lost[key] = None

    def leave(self, replica: Replica) -> None:
        if replica in self:
            self._leave(_key(replica))

    def _leave(self, key: Key) -> None:
        self._followed.pop(key, None)
        self._syncing.pop(key, None)
        self._unsaved.pop(key, None)
        self._resting.pop(key, None)
        self._lost.pop(key, None)
        self._changed[key] = None

    # --- asking ---

    @property
    def deadline_ms(self) -> int | None:
        """When there may be a request to send; None while that depends on other things."""
        if self.under_way or not self._followed:
            return None
        due = list(self._resting.values())
        if self._changed or self._session.has_targets or any(key not in self._resting for key in self._lost):
            due.append(self._resume_ms)
        return max(min(due), self._resume_ms) if due else None

    def next_request(self, broker_epoch: int, now_ms: int) -> Message | None:
        """None: nothing to ask for, or not now."""
        if self.under_way or now_ms < self._resume_ms:
            return None
        for key in [key for key, until_ms in self._resting.items() if until_ms <= now_ms]:
            del self._resting[key]
            self._changed[key] = None
        for key in [key for key in self._syncing if _is_stored(self._followed[key].replica)]:
            del self._syncing[key]
            self._changed[key] = None
        for key in [key for key in self._unsaved if _start_is_durable(self._followed[key].replica)]:
            del self._unsaved[key]
            self._changed[key] = None
        self._update_session()
        request = self._lookup_request() or self._fetch_request(broker_epoch)
        self.under_way = request is not None
        return request

    def _update_session(self) -> None:
        for key in self._changed:
            followed = self._followed.get(key)
            position = None
            if followed is not None and key not in self._resting and key not in self._lost:
                if _is_stored(followed.replica):
                    position = _position(followed)
                else:
                    self._syncing[key] = None
            self._session.set(key, position)
        self._changed.clear()

    def _fetch_request(self, broker_epoch: int) -> FetchRequest | None:
        if not self._session.has_targets:
            return None
        settings = self._settings
        request = self._session.next_request(settings.partition_bytes_max)
        request.replica_state = ReplicaState(self._node_id, broker_epoch)
        request.max_wait_ms = settings.wait_ms
        if self._syncing:
            request.max_wait_ms = settings.sync_wait_ms
        elif self._unsaved:
            request.max_wait_ms = settings.save_wait_ms
        request.min_bytes = settings.min_bytes
        request.max_bytes = settings.reply_bytes_max
        return request

    def _lookup_request(self) -> ListOffsetsRequest | None:
        topics: dict[str, ListOffsetsTopic] = {}
        for key in self._lost:
            if key not in self._resting:
                followed = self._followed[key]
                topic = followed.replica.topic
                entry = topics.setdefault(topic, ListOffsetsTopic(topic, []))
                entry.partitions.append(ListOffsetsPartition(key[1], followed.epoch, EARLIEST))
                self._lookups[key] = followed.epoch
        return ListOffsetsRequest(self._node_id, topics=list(topics.values())) if topics else None

    # --- answers ---

    def take_moved(self) -> list[Replica]:
        """Replicas whose start the last response moved up: it is to be saved before the leader is told."""
        moved, self._moved = self._moved, []
        return moved

    @property
    def waits_for_save(self) -> bool:
        return bool(self._unsaved)

    def on_response(self, response: Message | None, now_ms: int, wall_ms: int) -> None:
        assert self.under_way, "nothing was asked"
        self.under_way = False
        lookups, self._lookups = self._lookups, {}
        if isinstance(response, ListOffsetsResponse):
            self._failures = 0
            self._begin_anew(response, lookups, now_ms, wall_ms)
        elif isinstance(response, FetchResponse) and not lookups:
            self._take(response, now_ms, wall_ms)
        else:
            self._on_failure(now_ms)
        if self._syncing:
            self._resume_ms = max(self._resume_ms, now_ms + self._settings.sync_patience_ms)

    def on_stored(self, replica: Replica) -> None:
        """Something of it was synced. When that was the last sync waited for, the next request waits no longer."""
        key = _key(replica)
        if key in self._syncing and _is_stored(replica):
            del self._syncing[key]
            self._changed[key] = None
            if not self._syncing and not self._failures:
                self._resume_ms = 0

    def _take(self, response: FetchResponse, now_ms: int, wall_ms: int) -> None:
        if response.error_code != ErrorCode.NONE:
            self._on_failure(now_ms, in_session=response.error_code in SESSION_LOST)
            return
        self._failures = 0
        self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = bytes(topic.topic_id), data.partition_index
                followed, asked = self._followed.get(key), self._session.asked(key)
                if followed is None or asked is None:
                    continue
                if asked.leader_epoch != followed.epoch or asked.offset != followed.replica.log.end_offset:
                    # The answer is to somebody it was not: the epoch has changed, or the log.
                    self._changed[key] = None
                    continue
                self._take_partition(key, followed, data, now_ms, wall_ms)

    def _take_partition(self, key: Key, followed: _Followed, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        try:
            if data.error_code != ErrorCode.NONE:
                self._on_refusal(key, followed, data.error_code, now_ms)
            elif data.diverging_epoch.epoch >= 0:
                self._cut(key, followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset, now_ms, wall_ms)
            else:
                self._append(key, followed, data, wall_ms)
                wait_ms = followed.replica.rest_ms(len(data.records or b""), now_ms)
                if wait_ms:
                    self._resting[key] = now_ms + wait_ms
                    self._changed[key] = None
                followed.failures = 0
                followed.told = None
        except CorruptMessage as error:
            self._tell(followed, BadBatchFetched(str(followed.replica), self.leader_id, str(error)))
            self._rest(key, followed, now_ms, self._settings.corrupt_retry_ms)
        except (ProtocolError, OSError) as error:
            self._on_storage_error(key, followed, error, now_ms)

    def _append(self, key: Key, followed: _Followed, data: PartitionData, wall_ms: int) -> None:
        replica = followed.replica
        log = replica.log
        replica.unclean = False
        if data.records is not None and len(data.records):
            self._changed[key] = None
            try:
                replica.fetched(data.records, wall_ms)  # type: ignore[arg-type]  # no slices in what was received
            finally:
                if not _is_stored(replica):
                    self._syncing[key] = None
        replica.advance(min(data.high_watermark, log.end_offset))
        if log.start_offset < data.log_start_offset <= log.high_watermark:
            retention.delete_before(log, data.log_start_offset)
            self._unsaved[key] = None
            self._moved.append(replica)
        asked = self._session.asked(key)
        if asked is not None and asked.start_offset < log.proven_start:
            self._changed[key] = None

    def _cut(self, key: Key, followed: _Followed, epoch: int, leader_end: int, now_ms: int, wall_ms: int) -> None:
        """The leader's log has nothing of an epoch above `epoch` that is here, and that one ends at `leader_end`."""
        replica = followed.replica
        log = replica.log
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        offset = min(leader_end, own_end) if own_epoch >= 0 else leader_end
        if not 0 <= offset < log.end_offset:
            self._tell(followed, CutMeaningless(str(replica), self.leader_id, offset))
            self._rest(key, followed, now_ms)
        elif offset < log.high_watermark and not replica.unclean:
            self._tell(followed, CutRefused(str(replica), self.leader_id, offset, log.high_watermark))
            self._stop(key)
        else:
            before = log.end_offset
            replica.cut_to(offset, wall_ms)
            self._report(TailCut(str(replica), self.leader_id, offset, log.end_offset, before))
            self._changed[key] = None

    def _begin_anew(self, response: ListOffsetsResponse, lookups: dict[Key, int], now_ms: int, wall_ms: int) -> None:
        found = {
            (topic.name, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for key, epoch in lookups.items():
            followed = self._followed.get(key)
            if followed is None or followed.epoch != epoch:
                continue
            replica = followed.replica
            answer = found.get((replica.topic, replica.index))
            if answer is None or answer.error_code != ErrorCode.NONE or answer.offset < 0:
                self._rest(key, followed, now_ms)
                continue
            try:
                self._restart(key, followed, answer.offset, now_ms, wall_ms)
            except (ProtocolError, OSError) as error:
                self._on_storage_error(key, followed, error, now_ms)

    def _restart(self, key: Key, followed: _Followed, leader_start: int, now_ms: int, wall_ms: int) -> None:
        log = followed.replica.log
        if log.start_offset < log.end_offset >= leader_start and not log.quarantined:
            # Refused, and yet it could follow: the leader's log has changed in between.
            refused = OffsetRefused(str(followed.replica), self.leader_id, log.end_offset, leader_start)
            self._tell(followed, refused)
            del self._lost[key]
            self._rest(key, followed, now_ms)
        else:
            start_before, end_before = log.start_offset, log.end_offset
            why = log.failure or f"the log of node {self.leader_id}, which leads, does not continue it"
            followed.replica.restart_at(leader_start, wall_ms)
            self._report(CopyBegunAnew(str(followed.replica), leader_start, start_before, end_before, why))
            del self._lost[key]
            self._changed[key] = None

    # --- trouble ---

    def _on_refusal(self, key: Key, followed: _Followed, code: int, now_ms: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lost[key] = None
            self._changed[key] = None
            if followed.failures:
                self._rest(key, followed, now_ms)
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            # A new epoch is on its way here with the metadata; it makes an end of this rest.
            self._rest(key, followed, now_ms, self._settings.retry_ms_max)
        else:
            self._rest(key, followed, now_ms)

    def _on_storage_error(self, key: Key, followed: _Followed, error: Exception, now_ms: int) -> None:
        log = followed.replica.log
        if log.quarantined and key not in self._lost:
            by_failed_cut = isinstance(error, FailedCut)
            self._tell(followed, CopyDamaged(str(followed.replica), str(error), Remedy.FETCH, by_failed_cut))
            self._stop(key)
            self.on_damaged(followed.replica)
            return
        if isinstance(log.health, ReadOnly) and isinstance(error, StorageError):
            self._tell(followed, FollowerOffline(str(followed.replica), str(error)))
            self._stop(key)
            return
        self._tell(followed, FetchedNotStored(str(followed.replica), self.leader_id, str(error)))
        self._rest(key, followed, now_ms, self._settings.retry_ms_max)

    def _on_failure(self, now_ms: int, *, in_session: bool = False) -> None:
        """No answer, or one for nobody. What the leader knows of the session, nobody can tell."""
        self._session.end()
        if in_session and not self._failures:
            self._failures = 1
            return
        self._resume_ms = now_ms + self._back_off(self._failures)
        self._failures += 1

    def _rest(self, key: Key, followed: _Followed, now_ms: int, wait_ms: int = 0) -> None:
        self._resting[key] = now_ms + (wait_ms or self._back_off(followed.failures))
        followed.failures += 1
        self._changed[key] = None

    def _back_off(self, failures: int) -> int:
        settings = self._settings
        return min(settings.retry_ms << min(failures, 16), settings.retry_ms_max)

    def _stop(self, key: Key) -> None:
        """Not fetched until it follows anew."""
        self._leave(key)

    def _tell(self, followed: _Followed, trouble: ReplicaNews) -> None:
        if trouble != followed.told:
            followed.told = trouble
            self._report(trouble)


SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


def _key(replica: Replica) -> Key:
    return replica.topic_id, replica.index


def _is_stored(replica: Replica) -> bool:
    return replica.stored_offset >= replica.log.end_offset


def _start_is_durable(replica: Replica) -> bool:
    return replica.log.proven_start >= replica.log.start_offset


def _position(followed: _Followed) -> Position:
    log = followed.replica.log
    # Of the last record, not of the newest epoch: this node may have led one and written nothing in it.
    last_epoch = log.epochs.epoch_at(log.end_offset - 1) if log.end_offset > log.start_offset else -1
    return Position(log.end_offset, followed.epoch, last_epoch, log.proven_start)
