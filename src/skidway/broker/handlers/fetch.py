"""Fetch (key 1), v4–v18.

Whole batches below the high watermark, in the order of the request (of the session), as slices of the log files.
The first partition that has anything sends at least one batch, however large. A fetch that finds less than
`min_bytes` waits for its partitions to move, up to `max_wait_ms`.
A follower answers readers (v11+) too, with what it knows to be committed; a leader sends those who name a rack to an
in-sync replica there (KIP-392). Who asks the wrong node is told where the leader is (v16+, KIP-951).
Fetches of followers are in `broker.replica_polls`, those of the metadata log in `broker.quorum_host`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skidway.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchTarget, Session
from skidway.broker.leader_hints import ELSEWHERE, NOBODY, address_of, leader_of, nearer_replica
from skidway.broker.partition import Partition
from skidway.errors import DamagedLog, ErrorCode, NotLeaderOrFollower, ProtocolError
from skidway.ports import FileSlice
from skidway.quorum.wire import is_metadata_fetch
from skidway.wire.message import Message
from skidway.wire.schema.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

TOPIC_IDS_SINCE = 13
RACK_SINCE = 11
REPLICA_STATE_SINCE = 15
HINTS_SINCE = 16
READ_COMMITTED = 1
READ_ELSEWHERE_MS = 600_000
"""Twice as long as a reader stays with a replica before it asks the leader again, unless told otherwise."""
NO_RECORDS = b""


def handle(node: Node, call: Call, request: FetchRequest) -> FetchResponse | Message | None:
    if is_metadata_fetch(request):
        return node.quorum.answer(call, request)
    if call.version >= REPLICA_STATE_SINCE and request.replica_state.replica_id >= 0:
        return node.replica_polls.fetch(call, request)
    by_id = call.version >= TOPIC_IDS_SINCE
    targets = [
        FetchTarget(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    # A partition named twice is fetched once, as last named.
    targets = list({target.key: target for target in targets}.values())
    sessions = node.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        session = sessions.begin(request.session_id, request.session_epoch, by_id, targets, call.now_ms)
        return Poll(node, call, request, session, targets, incremental=False).answer()
    forgotten = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    try:
        session = sessions.resume(request.session_id, request.session_epoch, by_id, targets, forgotten, call.now_ms)
    except ProtocolError as error:
        return FetchResponse(error_code=error.code)
    return Poll(node, call, request, session, list(session.targets.values()), incremental=True).answer()


class Poll:
    """One fetch request: reads, and reads again when something has moved."""

    __slots__ = (
        "anywhere",
        "bytes_found",
        "call",
        "find",
        "found",
        "incremental",
        "max_bytes",
        "node",
        "refused",
        "request",
        "session",
        "targets",
        "urgent",
    )

    def __init__(
        self,
        node: Node,
        call: Call,
        request: FetchRequest,
        session: Session | None,
        targets: list[FetchTarget],
        *,
        incremental: bool,
    ) -> None:
        self.node = node
        self.call = call
        self.request = request
        self.session = session
        self.targets = targets
        self.incremental = incremental
        self.max_bytes = min(request.max_bytes, node.limits.fetch_bytes_max)
        by_id = call.version >= TOPIC_IDS_SINCE
        self.anywhere = call.version >= RACK_SINCE
        self.find: Callable[..., Partition] = node.partitions.find_by_id if by_id else node.partitions.find
        self.found: list[tuple[FetchTarget, PartitionData]] = []
        self.bytes_found = 0
        self.urgent = self.refused = False

    def answer(self) -> FetchResponse | None:
        """The response, or None after arranging to be woken."""
        request = self.request
        self._read()
        if self.urgent or self.bytes_found >= request.min_bytes or request.max_wait_ms <= 0 or not self.targets:
            return self._response()
        if self.node.polls.waits + len(self.targets) > self.node.limits.fetch_waits_max:
            return self._response()
        self._wait(min(request.max_wait_ms, self.node.limits.fetch_wait_ms_max))
        return None

    def _wait(self, wait_ms: int) -> None:
        polls = self.node.polls
        partitions = [self.find(target.topic, target.partition) for target in self.targets]
        missing_bytes = self.request.min_bytes - self.bytes_found
        parked = polls.park(partitions, missing_bytes, self.call.now_ms + wait_ms, self._resume)
        self.call.on_gone = lambda: polls.cancel(parked)
        # All of this is read again; thousands of long polls wait at a time.
        self.found = []
        self.request.topics = []
        self.request.forgotten_topics_data = []

    def _resume(self) -> None:
        try:
            self._read()
            response = self._response()
        except Exception as bug:
            self.call.fail(bug)
            return
        self.call.reply(response)

    def _read(self) -> None:
        self.found = []
        self.urgent = self.refused = False
        self.bytes_found = 0
        for target in self.targets:
            try:
                data = self._read_one(target)
            except ProtocolError as error:
                if isinstance(error, DamagedLog):
                    self.node.damaged.found(self.find(target.topic, target.partition), str(error))
                data = PartitionData(target.partition, error.code, -1, aborted_transactions=self._no_aborted())
                self.urgent = self.refused = True
            self.found.append((target, data))

    def _read_one(self, target: FetchTarget) -> PartitionData:
        if self._replica_id() >= 0:
            raise NotLeaderOrFollower()
        partition = self.find(target.topic, target.partition)
        if self.anywhere:
            partition.leader.check_reader(target.leader_epoch)
        else:
            partition.leader.check_epoch(target.leader_epoch)
        log = partition.log
        high_watermark = log.high_watermark
        data = PartitionData(target.partition, 0, high_watermark, high_watermark, log.start_offset)
        data.aborted_transactions = self._no_aborted()
        data.records = NO_RECORDS
        rack = self.request.rack_id
        if rack and self._is_nearer_elsewhere(partition, rack, target.offset, data):
            return data
        if target.last_fetched_epoch >= 0:
            diverging = partition.divergence(target.last_fetched_epoch, target.offset)
            if diverging is not None:
                data.diverging_epoch = EpochEndOffset(*diverging)
                self.urgent = True
                return data
        room = min(target.max_bytes, self.max_bytes - self.bytes_found)
        records = log.read(target.offset, room, min_one=self.bytes_found == 0)
        if records is not None:
            data.records = records
            self.bytes_found += len(records)
        return data

    def _is_nearer_elsewhere(self, partition: Partition, rack: str, offset: int, data: PartitionData) -> bool:
        node = self.node
        replica = nearer_replica(node.image, partition, node.settings.node_id, rack, offset)
        if replica == NOBODY:
            return False
        data.preferred_read_replica = replica
        partition.read_elsewhere_until_ms = self.call.now_ms + READ_ELSEWHERE_MS
        self.urgent = True
        return True

    def _no_aborted(self) -> list[AbortedTransaction] | None:
        return [] if self.request.isolation_level == READ_COMMITTED else None

    def _replica_id(self) -> int:
        request = self.request
        return request.replica_id if self.call.version < REPLICA_STATE_SINCE else request.replica_state.replica_id

    def _response(self) -> FetchResponse:
        session = self.session
        topics: list[FetchableTopicResponse] = []
        last_topic: object = None
        by_id = self.call.version >= TOPIC_IDS_SINCE
        for target, data in self.found:
            if session is not None and not self._is_news(target, data) and self.incremental:
                continue
            if target.topic != last_topic:
                last_topic = target.topic
                entry = FetchableTopicResponse(partitions=[])
                if by_id:
                    entry.topic_id = target.topic  # type: ignore[assignment]
                else:
                    entry.topic = target.topic  # type: ignore[assignment]
                topics.append(entry)
            topics[-1].partitions.append(data)
        response = FetchResponse(
            error_code=ErrorCode.NONE, session_id=session.id if session is not None else 0, responses=topics
        )
        if self.call.version >= HINTS_SINCE and self.refused:
            self._tell_leaders(response)
        return response

    def _tell_leaders(self, response: FetchResponse) -> None:
        image = self.node.image
        leaders: dict[int, None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code in ELSEWHERE:
                    leader, epoch = leader_of(image, topic.topic_id, data.partition_index)
                    data.current_leader = LeaderIdAndEpoch(leader, epoch)
                    leaders[leader] = None
        response.node_endpoints = [NodeEndpoint(*found) for leader in leaders if (found := address_of(image, leader))]

    def _is_news(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether an incremental reply must mention the partition; remembers what is told."""
        news = (
            isinstance(data.records, FileSlice)
            or data.error_code != 0
            or data.high_watermark != target.told_high_watermark
            or data.log_start_offset != target.told_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica != NOBODY
        )
        if news:
            # An error makes the client look again, so the next answer is news whatever it says.
            failed = data.error_code != 0
            target.told_high_watermark = -1 if failed else data.high_watermark
            target.told_start_offset = -1 if failed else data.log_start_offset
            if self.session is not None and isinstance(data.records, FileSlice):
                self.session.served(target)
        return news
