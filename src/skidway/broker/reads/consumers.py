"""Fetches of consumers: what is committed (with read_committed: stable), in the order of the request or the session.

The first partition that has anything sends at least one batch, however large. Every fetch looks at all partitions of
its session. A reader that names a rack is sent to an in-sync replica there (KIP-392), one that asks the wrong node is
told where the leader is (KIP-951).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skidway.broker.reads.leader_hints import ELSEWHERE, NOBODY, address_of, leader_of, nearer_replica
from skidway.broker.reads.poll import NO_RECORDS, FetchPoll, Reads
from skidway.broker.reads.sessions import (
    NOBODY_IN_PARTICULAR,
    AskedByFetch,
    FetchTarget,
    Session,
    Sessions,
)
from skidway.errors import NotLeaderOrFollower, ProtocolError
from skidway.log.bounds import HIGH_WATERMARK, LAST_STABLE, Bound
from skidway.log.lookup import aborted_in
from skidway.metadata.image import Image
from skidway.ports import Random
from skidway.steps import Steps
from skidway.wire.schema.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.partition import Partition

RACK_SINCE = 11
HINTS_SINCE = 16
READ_ELSEWHERE_MS = 600_000
"""Twice as long as a reader stays with a replica before it asks the leader again, unless told otherwise."""

READ_COMMITTED = 1


def bound_of(isolation_level: int) -> Bound:
    """How far a client may read."""
    return LAST_STABLE if isolation_level == READ_COMMITTED else HIGH_WATERMARK


class ConsumerSession(Session[FetchTarget]):
    __slots__ = ()

    new_target = staticmethod(FetchTarget)


class ConsumerFetches:
    def __init__(self, reads: Reads, image: Image, node_id: int, random: Random) -> None:
        self.reads = reads
        self.image = image
        self.node_id = node_id
        self.sessions = Sessions(ConsumerSession, reads.limits, random)

    def fetch(self, call: Call, request: FetchRequest) -> FetchResponse | Steps[FetchResponse | None] | None:
        asked = AskedByFetch(request, call.version)
        try:
            session = self.sessions.session_of(asked, NOBODY_IN_PARTICULAR, call.now_ms)
        except ProtocolError as error:
            return FetchResponse(error_code=error.code)
        poll = ConsumerPoll(self, call, request, session)
        # Most say that they go on as before.
        updating = self.sessions.update(session, asked) if asked.named or asked.forgotten else ()
        return poll.answer(updating, asked.named + len(session.row))


class ConsumerPoll(FetchPoll[FetchTarget]):
    __slots__ = ("_targets", "from_replica", "rack", "upto")
    fetches: ConsumerFetches

    def __init__(
        self, fetches: ConsumerFetches, call: Call, request: FetchRequest, session: Session[FetchTarget]
    ) -> None:
        super().__init__(fetches, call, request, session)
        self.rack = request.rack_id
        self.upto = bound_of(request.isolation_level)
        if self.upto is LAST_STABLE:
            self.parking = fetches.reads.stable_parking
        self.from_replica = request.replica_id >= 0
        """A broker of before version 15, which cannot follow a leader here."""
        self._targets: list[FetchTarget] | None = None

    def targets(self) -> list[FetchTarget]:
        """What was in the session when it was asked, whatever later requests change while this one waits."""
        if self._targets is None:
            self._targets = list(self.session.row.values())
        return self._targets

    def look_at(self, target: FetchTarget) -> PartitionData:
        if self.from_replica:
            raise NotLeaderOrFollower()
        partition, asked = self.find(target.topic, target.index), target.asked
        if self.call.version >= RACK_SINCE:
            partition.leader.check_reader(asked.current_leader_epoch)
        else:
            partition.leader.check_epoch(asked.current_leader_epoch)
        log = partition.log
        data = PartitionData(target.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset)
        data.aborted_transactions = [] if self.upto is LAST_STABLE else None
        data.records = NO_RECORDS
        if self.rack and self._is_nearer_elsewhere(partition, asked.fetch_offset, data):
            return data
        if asked.last_fetched_epoch >= 0:
            diverging = partition.divergence(asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                data.diverging_epoch = EpochEndOffset(*diverging)
                self.urgent = True
                return data
        room = min(asked.partition_max_bytes, self.max_bytes - self.bytes_found)
        records = log.read(asked.fetch_offset, room, self.upto, min_one=self.bytes_found == 0)
        if records is not None:
            data.records = records
            self.bytes_found += records.length
            partition.traffic.bytes_out += records.length
            if self.upto is LAST_STABLE and (aborted := aborted_in(log, asked.fetch_offset, records)):
                data.aborted_transactions = [AbortedTransaction(*entry) for entry in aborted]
        return data

    def _is_nearer_elsewhere(self, partition: Partition, offset: int, data: PartitionData) -> bool:
        replica = nearer_replica(
            self.fetches.image, partition, self.fetches.node_id, self.rack, offset, self.call.caller.listener
        )
        if replica == NOBODY:
            return False
        data.preferred_read_replica = replica
        partition.read_elsewhere_until_ms = self.call.now_ms + READ_ELSEWHERE_MS
        self.urgent = True
        return True

    def refusal(self, target: FetchTarget, error: ProtocolError) -> PartitionData:
        no_transactions: list[AbortedTransaction] | None = [] if self.upto is LAST_STABLE else None
        return PartitionData(target.index, error.code, -1, aborted_transactions=no_transactions)

    def must_wait(self) -> bool:
        if self.urgent or self.bytes_found >= self.min_bytes or self.wait_ms <= 0 or not self._targets:
            return False
        waits = self.reads.parking.waits + self.reads.stable_parking.waits
        return waits + len(self._targets) <= self.reads.limits.fetch_waits_max

    def awaited(self) -> Sequence[Partition]:
        return [self.find(target.topic, target.index) for target in self.targets()]

    def on_refusal(self, target: FetchTarget, data: PartitionData, response: FetchResponse) -> None:
        if self.call.version < HINTS_SINCE or data.error_code not in ELSEWHERE:
            return
        image = self.fetches.image
        leader, epoch = leader_of(image, target.topic, target.index)
        data.current_leader = LeaderIdAndEpoch(leader, epoch)
        found = address_of(image, leader, self.call.caller.listener)
        if found is not None and all(endpoint.node_id != leader for endpoint in response.node_endpoints):
            response.node_endpoints.append(NodeEndpoint(*found))
