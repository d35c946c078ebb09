"""Reading partitions of any topics from given offsets: `poll` for batches of records, or iterate over records.

Batches are checked against their checksums. Control records are never shown; with `READ_COMMITTED`, neither are the
records of aborted transactions.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import BadReply, BrokerError, ClientError, ConnectionLost, ReplyTimeout, check
from skidway.blocking_client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, offsets_at
from skidway.errors import CorruptMessage, ErrorCode, ProtocolError
from skidway.limits import DEFAULT_LIMITS, MIB
from skidway.ports import FileSlice
from skidway.records.batch import BatchHeader, crc_matches, iter_headers
from skidway.records.control import ControlType, read_control_type
from skidway.records.record import Headers, read_records
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH_BYTES = 16 * MIB
PARTITION_FETCH_BYTES = 2 * MIB
POLL_MS = 500

Place = tuple[str, int]
"""Topic and partition."""


class Consumed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Reader:
    """Not for several threads at once. `positions` holds the next offset of each partition, and may be changed."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[Place, int],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        partition_fetch_bytes: int = PARTITION_FETCH_BYTES,
        on_gone: Callable[[Place, int, int], None] | None = None,
        on_damaged: Callable[[Place, str], None] | None = None,
    ) -> None:
        """`on_gone(place, wanted, start)`: what was wanted next has been deleted, reading goes on at the start of the
        log. `on_damaged(place, reason)`: the records of a partition cannot be read, the others are read on. Without
        them that is an error."""
        self.cluster = cluster
        self.positions = dict(positions)
        self.isolation_level = isolation_level
        self.fetch_bytes = fetch_bytes
        self.partition_fetch_bytes = partition_fetch_bytes
        self.on_gone = on_gone
        self.on_damaged = on_damaged
        self._turn = 0

    def poll(self, timeout_ms: int = POLL_MS, *, min_bytes: int = 1) -> list[Consumed]:
        """What there is, or what comes within the time. Positions move past what is returned."""
        topics = {topic for topic, _ in self.positions}
        return self.cluster.retrying(lambda: self._fetch(timeout_ms, min_bytes), topics=topics)

    def read(self, *, follow: bool = False, until: Mapping[Place, int] | None = None) -> Iterator[Consumed]:
        """Records up to the end as it is now (or `until`), or for ever with `follow`."""
        for records in self.read_polls(follow=follow, until=until):
            yield from records

    def read_polls(self, *, follow: bool = False, until: Mapping[Place, int] | None = None) -> Iterator[list[Consumed]]:
        """Like `read`, a poll's worth at a time: for whoever wants to do something between the polls."""
        if follow:
            while True:
                yield self.poll()
        ends = until if until is not None else self.ends()
        while self._drop_finished(ends):
            yield [record for record in self.poll() if record.offset < ends[record.topic, record.partition]]

    def ends(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for topic, partitions in by_topic(self.positions).items():
            ends = offsets_at(self.cluster, topic, partitions, LATEST, self.isolation_level)
            found |= {(topic, partition): end for partition, end in ends.items()}
        return found

    def _drop_finished(self, ends: Mapping[Place, int]) -> bool:
        """A partition read to its end is not asked for again."""
        self.positions = {place: offset for place, offset in self.positions.items() if offset < ends[place]}
        return bool(self.positions)

    def _fetch(self, timeout_ms: int, min_bytes: int) -> list[Consumed]:
        by_leader: dict[Connection, list[Place]] = {}
        for place in self._in_turn():
            by_leader.setdefault(self.cluster.leader(*place), []).append(place)
        # With several leaders nobody waits long: one that has nothing would hold back one that has.
        wait_ms = timeout_ms if len(by_leader) == 1 else min(timeout_ms, 50)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            records = self._fetch_once(by_leader, wait_ms, min_bytes)
            given_up = any(place not in self.positions for led in by_leader.values() for place in led)
            if records or given_up or time.monotonic() >= deadline:
                return records

    def _in_turn(self) -> list[Place]:
        """Another partition first each time: the broker fills its reply in this order."""
        places = list(self.positions)
        if not places:
            return []
        self._turn = (self._turn + 1) % len(places)
        return places[self._turn :] + places[: self._turn]

    def _fetch_once(self, by_leader: Mapping[Connection, list[Place]], wait_ms: int, min_bytes: int) -> list[Consumed]:
        """Ask all the leaders, then hear all of them: one that fails does not keep what the others sent."""
        records: list[Consumed] = []
        trouble: ClientError | None = None
        try:
            for connection, places in by_leader.items():
                connection.send(self._request(places, wait_ms, min_bytes))
            for connection in by_leader:
                try:
                    records += self._receive(connection, by_leader[connection], wait_ms)
                except (BrokerError, ConnectionLost, ReplyTimeout) as error:
                    trouble = error
        except BaseException:
            # Replies that nobody waits for any more would be taken for answers to the next requests.
            for connection in by_leader:
                if connection.awaited:
                    connection.close()
            raise
        if trouble is not None and not records:
            raise trouble
        return records

    def _receive(self, connection: Connection, asked: list[Place], wait_ms: int) -> list[Consumed]:
        reply = connection.receive(FetchResponse, timeout_ms=wait_ms + self.cluster.timeout_ms)
        check(reply.error_code, f"fetching from {connection.address}")
        records: list[Consumed] = []
        trouble: BrokerError | None = None
        names = {self.cluster.topic(topic).id: topic for topic, _ in asked}
        for answered in reply.responses:
            # By name up to version 12, by id from 13 on.
            topic = answered.topic or names.get(bytes(answered.topic_id), "")
            for data in answered.partitions:
                try:
                    records += self._take((topic, data.partition_index), data)
                except BrokerError as error:
                    trouble = error
        if trouble is not None and not records:
            raise trouble
        return records

    def _request(self, places: list[Place], wait_ms: int, min_bytes: int) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for topic, partition in places:
            wanted = FetchPartition(
                partition=partition,
                fetch_offset=self.positions[topic, partition],
                partition_max_bytes=self.partition_fetch_bytes,
            )
            topics.setdefault(topic, []).append(wanted)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=self.fetch_bytes,
            isolation_level=self.isolation_level,
            topics=[
                FetchTopic(topic=topic, topic_id=self.cluster.topic(topic).id, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    def _take(self, place: Place, data: PartitionData) -> list[Consumed]:
        """The records of one partition's answer that were not seen before."""
        about = f"{place[0]} partition {place[1]}"
        if place not in self.positions:
            return []
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(place)
        if data.error_code:
            raise BrokerError(data.error_code, about)
        if not data.records:
            return []
        assert not isinstance(data.records, FileSlice)
        try:
            return self._open(place, memoryview(data.records), data)
        except ProtocolError as error:
            reason = f"damaged records: {error}"
            if self.on_damaged is None:
                raise BadReply(f"{about}: {reason}") from error
            del self.positions[place]
            self.on_damaged(place, reason)
            return []

    def _out_of_range(self, place: Place) -> list[Consumed]:
        topic, partition = place
        wanted = self.positions[place]
        start = offsets_at(self.cluster, topic, [partition], EARLIEST, self.isolation_level)[partition]
        if self.on_gone is None or wanted >= start:
            text = f"offset {wanted} is outside the log, which starts at {start}"
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic} partition {partition}", text)
        self.on_gone(place, wanted, start)
        self.positions[place] = start
        return []

    def _open(self, place: Place, received: memoryview, data: PartitionData) -> list[Consumed]:
        """Up to the first batch that is damaged: it is an error once it is the next."""
        topic, partition = place
        position = self.positions[place]
        aborted = _Aborted(data) if self.isolation_level == READ_COMMITTED else None
        records: list[Consumed] = []
        try:
            for start, header in iter_headers(received):
                batch = received[start : start + header.size]
                if not crc_matches(batch):
                    raise CorruptMessage(f"bad checksum in the batch at offset {header.base_offset}")
                if not header.is_control and (aborted is None or not aborted.hides(header)):
                    opened = read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max)
                    records += [Consumed(topic, partition, *rest) for rest in opened if rest.offset >= position]
                elif header.is_control and aborted is not None:
                    aborted.on_control(header, batch)
                self.positions[place] = max(self.positions[place], header.last_offset + 1)
        except ProtocolError:
            if not records:
                raise
        return records


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions of each topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    return topics


class _Aborted:
    """Which transactions are aborted at the place in the log where the reader is."""

    __slots__ = ("_begun", "_coming")

    def __init__(self, data: PartitionData) -> None:
        listed = sorted(data.aborted_transactions or [], key=lambda entry: entry.first_offset)
        self._coming = deque((entry.first_offset, entry.producer_id) for entry in listed)
        self._begun: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._begun.add(self._coming.popleft()[1])
        return header.is_transactional and header.producer_id in self._begun

    def on_control(self, header: BatchHeader, batch: memoryview) -> None:
        self.hides(header)
        for record in read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max):
            if read_control_type(record.key) == ControlType.ABORT:
                self._begun.discard(header.producer_id)
