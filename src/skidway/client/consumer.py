"""Reading partitions from given offsets, without a group: `poll` for batches of records, or iterate over records.

Batches are checked against their checksums. Control records are never shown; with `READ_COMMITTED`, neither are the
records of aborted transactions.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from skidway.client.cluster import Cluster
from skidway.client.connection import Connection
from skidway.client.errors import BadReply, BrokerError, ClientError, ConnectionLost, ReplyTimeout, check
from skidway.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, offsets_at
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


class Consumed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Consumer:
    """Not for several threads at once. `positions` holds the next offset of each partition, and may be changed."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        positions: Mapping[int, int],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        partition_fetch_bytes: int = PARTITION_FETCH_BYTES,
        on_gone: Callable[[int, int, int], None] | None = None,
        on_damaged: Callable[[int, str], None] | None = None,
    ) -> None:
        """`on_gone(partition, wanted, start)`: what was wanted next has been deleted, reading goes on at the start of
        the log. `on_damaged(partition, reason)`: the records of a partition cannot be read, the others are read on.
        Without them that is an error."""
        self.cluster = cluster
        self.topic = topic
        self.positions = dict(positions)
        self.isolation_level = isolation_level
        self.fetch_bytes = fetch_bytes
        self.partition_fetch_bytes = partition_fetch_bytes
        self.on_gone = on_gone
        self.on_damaged = on_damaged
        self._turn = 0

    def poll(self, timeout_ms: int = POLL_MS, *, min_bytes: int = 1) -> list[Consumed]:
        """What there is, or what comes within the time. Positions move past what is returned."""
        return self.cluster.retrying(lambda: self._fetch(timeout_ms, min_bytes), topics=[self.topic])

    def read(self, *, follow: bool = False, until: Mapping[int, int] | None = None) -> Iterator[Consumed]:
        """Records up to the end as it is now (or `until`), or for ever with `follow`."""
        for records in self.read_polls(follow=follow, until=until):
            yield from records

    def read_polls(self, *, follow: bool = False, until: Mapping[int, int] | None = None) -> Iterator[list[Consumed]]:
        """Like `read`, a poll's worth at a time: for whoever wants to do something between the polls."""
        if follow:
            while True:
                yield self.poll()
        ends = until if until is not None else self.ends()
        while self._drop_finished(ends):
            yield [record for record in self.poll() if record.offset < ends[record.partition]]

    def ends(self) -> dict[int, int]:
        return offsets_at(self.cluster, self.topic, list(self.positions), LATEST, self.isolation_level)

    def _drop_finished(self, ends: Mapping[int, int]) -> bool:
        """A partition read to its end is not asked for again."""
        self.positions = {partition: offset for partition, offset in self.positions.items() if offset < ends[partition]}
        return bool(self.positions)

    def _fetch(self, timeout_ms: int, min_bytes: int) -> list[Consumed]:
        by_leader: dict[Connection, list[int]] = {}
        for partition in self._in_turn():
            by_leader.setdefault(self.cluster.leader(self.topic, partition), []).append(partition)
        # With several leaders nobody waits long: one that has nothing would hold back one that has.
        wait_ms = timeout_ms if len(by_leader) == 1 else min(timeout_ms, 50)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            records = self._fetch_once(by_leader, wait_ms, min_bytes)
            given_up = any(partition not in self.positions for led in by_leader.values() for partition in led)
            if records or given_up or time.monotonic() >= deadline:
                return records

    def _in_turn(self) -> list[int]:
        """Another partition first each time: the broker fills its reply in this order."""
        partitions = list(self.positions)
        if not partitions:
            return []
        self._turn = (self._turn + 1) % len(partitions)
        return partitions[self._turn :] + partitions[: self._turn]

    def _fetch_once(self, by_leader: Mapping[Connection, list[int]], wait_ms: int, min_bytes: int) -> list[Consumed]:
        """Ask all the leaders, then hear all of them: one that fails does not keep what the others sent."""
        records: list[Consumed] = []
        trouble: ClientError | None = None
        try:
            for connection, partitions in by_leader.items():
                connection.send(self._request(partitions, wait_ms, min_bytes))
            for connection in by_leader:
                try:
                    records += self._receive(connection, wait_ms)
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

    def _receive(self, connection: Connection, wait_ms: int) -> list[Consumed]:
        reply = connection.receive(FetchResponse, timeout_ms=wait_ms + self.cluster.timeout_ms)
        check(reply.error_code, f"fetching from {connection.address}")
        records: list[Consumed] = []
        trouble: BrokerError | None = None
        for data in (data for answered in reply.responses for data in answered.partitions):
            try:
                records += self._take(data)
            except BrokerError as error:
                trouble = error
        if trouble is not None and not records:
            raise trouble
        return records

    def _request(self, partitions: list[int], wait_ms: int, min_bytes: int) -> FetchRequest:
        wanted = [
            FetchPartition(
                partition=partition,
                fetch_offset=self.positions[partition],
                partition_max_bytes=self.partition_fetch_bytes,
            )
            for partition in partitions
        ]
        topic = FetchTopic(topic=self.topic, topic_id=self.cluster.topic(self.topic).id, partitions=wanted)
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=self.fetch_bytes,
            isolation_level=self.isolation_level,
            topics=[topic],
        )

    def _take(self, data: PartitionData) -> list[Consumed]:
        """The records of one partition's answer that were not seen before."""
        partition = data.partition_index
        about = f"{self.topic} partition {partition}"
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(partition)
        if data.error_code:
            raise BrokerError(data.error_code, about)
        if not data.records or partition not in self.positions:
            return []
        assert not isinstance(data.records, FileSlice)
        try:
            return self._open(partition, memoryview(data.records), data)
        except ProtocolError as error:
            reason = f"damaged records: {error}"
            if self.on_damaged is None:
                raise BadReply(f"{about}: {reason}") from error
            del self.positions[partition]
            self.on_damaged(partition, reason)
            return []

    def _out_of_range(self, partition: int) -> list[Consumed]:
        wanted = self.positions[partition]
        start = offsets_at(self.cluster, self.topic, [partition], EARLIEST, self.isolation_level)[partition]
        if self.on_gone is None or wanted >= start:
            text = f"offset {wanted} lies outside the log, which starts at {start}"
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic} partition {partition}", text)
        self.on_gone(partition, wanted, start)
        self.positions[partition] = start
        return []

    def _open(self, partition: int, received: memoryview, data: PartitionData) -> list[Consumed]:
        """Up to the first batch that is damaged: it is an error once it is the next."""
        position = self.positions[partition]
        aborted = _Aborted(data) if self.isolation_level == READ_COMMITTED else None
        records: list[Consumed] = []
        try:
            for start, header in iter_headers(received):
                batch = received[start : start + header.size]
                if not crc_matches(batch):
                    raise CorruptMessage(f"bad checksum in the batch at offset {header.base_offset}")
                if not header.is_control and (aborted is None or not aborted.hides(header)):
                    opened = read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max)
                    records += [Consumed(self.topic, partition, *rest) for rest in opened if rest.offset >= position]
                elif header.is_control and aborted is not None:
                    aborted.on_control(header, batch)
                self.positions[partition] = max(self.positions[partition], header.last_offset + 1)
        except ProtocolError:
            if not records:
                raise
        return records


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
