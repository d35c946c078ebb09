"""One range of one partition, fetched from its leader as raw record batches, by a task.

The next request is on its way while the caller works on what the last one brought. A leader that moves, a connection
that breaks and a broker that restarts are waited for; records that are gone go to the `LossReport`. Either every
offset of the range is covered by the chunks, or the report was told.
"""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from skidway.blocking_client.cluster import RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX, Cluster, NoSuchPartition, NoSuchTopic
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import (
    BadReply,
    BrokerError,
    ClientError,
    ConnectionLost,
    ReplyTimeout,
    Unreachable,
    check,
)
from skidway.blocking_client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from skidway.errors import ErrorCode
from skidway.limits import INT32_MAX, KIB
from skidway.ports import Buffer, FileSlice
from skidway.records.batch import HEADER_BYTES, PREFIX_BYTES
from skidway.spark.client_settings import ClientSettings
from skidway.spark.source.offsets import NO_ID, OffsetReader
from skidway.spark.source.planning import LossReport, OffsetRange
from skidway.spark.source.positions import Assign
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_MS = 500
FETCH_BYTES_MIN = 64 * KIB
FIRST_RECORD_BYTES = 1 * KIB
"""What a record is taken to weigh before any has been seen."""
GONE_PATIENCE_S = 1.0
"""How long a topic or partition that nobody knows is asked for again."""
IDLE_CLUSTERS_MAX = 8

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
_EXTENT = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""

_idle: dict[tuple[int, ClientSettings], list[Cluster]] = {}


@contextmanager
def borrowed(settings: ClientSettings) -> Iterator[Cluster]:
    """Connections that are kept from task to task. A fork has its own: a socket in two processes serves neither."""
    key = (os.getpid(), settings)
    kept = _idle.setdefault(key, [])
    cluster = kept.pop() if kept else settings.cluster()
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if len(kept) < IDLE_CLUSTERS_MAX:
        kept.append(cluster)
    else:
        cluster.close()


@dataclass(slots=True)
class Chunk:
    """Whole batches, and perhaps a part of one more; `start` is the first offset wanted of them."""

    data: Buffer
    start: int
    end: int
    """One past what the whole batches cover."""
    aborted: list[tuple[int, int]]


class RangeFetch:
    """Iterate once over `chunks`."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: OffsetRange,
        report: LossReport,
        *,
        isolation_level: int = READ_COMMITTED,
        fetch_bytes: int,
        timeout_ms: int,
    ) -> None:
        self.cluster = cluster
        self.wanted = wanted
        self.report = report
        self.isolation_level = isolation_level
        self.fetch_bytes = fetch_bytes
        self.timeout_ms = timeout_ms
        self.position = wanted.start
        self._offset_bytes = float(FIRST_RECORD_BYTES)
        self._asked: Connection | None = None

    def chunks(self) -> Iterator[Chunk]:
        try:
            while self.position < self.wanted.end:
                chunk = self._next()
                if chunk is None:
                    return
                self.position = chunk.end
                stuck = chunk.end == chunk.start
                if self.position < self.wanted.end and not stuck:
                    self._ask_ahead()
                yield chunk
                if stuck:
                    raise BadReply(f"{self._remaining()}: the leader sent bytes that are no whole batch")
        finally:
            # A reply that nobody takes would be taken for the answer to the next request.
            if self._asked is not None:
                self._asked.close()

    def _next(self) -> Chunk | None:
        """The chunk at the position; None when all that remains is lost, and reported."""
        deadline = time.monotonic() + self.timeout_ms / 1000
        pause_ms = RETRY_PAUSE_MS
        gone_s = 0.0
        while True:
            trouble: ClientError | None = None
            try:
                answer = self._receive()
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_deleted()
                    if self.position >= self.wanted.end:
                        return None
                    continue
                if answer.error_code in GONE and self._is_gone():
                    return None
                check(answer.error_code, str(self.wanted))
                chunk = self._chunk(answer)
                if chunk is not None:
                    return chunk
            except (NoSuchTopic, NoSuchPartition) as error:
                # Known from an earlier task, or from a broker that is behind the one that the driver asked.
                self.cluster.forget(self.wanted.topic)
                gone_s = gone_s or time.monotonic()
                if time.monotonic() - gone_s > GONE_PATIENCE_S:
                    self.report(f"{self._remaining()}: the topic was deleted before they were read")
                    return None
                trouble = error
            except (ConnectionLost, ReplyTimeout, Unreachable, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                trouble = error
                self.cluster.forget(self.wanted.topic)
            if time.monotonic() > deadline:
                if trouble is not None:
                    raise trouble
                self._report_vanished()
                return None
            if trouble is not None:
                time.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_PAUSE_MS_MAX)

    def _ask(self) -> Connection:
        connection = self.cluster.leader(self.wanted.topic, self.wanted.partition)
        # Somewhat more than what is left should weigh; a little too much costs less than one more round trip.
        weight = int((self.wanted.end - self.position) * self._offset_bytes * 1.05) + FETCH_BYTES_MIN
        size = min(self.fetch_bytes, weight, INT32_MAX)
        asked = FetchPartition(partition=self.wanted.partition, fetch_offset=self.position, partition_max_bytes=size)
        topic_id = self.wanted.topic_id
        if topic_id == NO_ID:
            topic_id = self.cluster.topic(self.wanted.topic).id
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=self.isolation_level,
            topics=[FetchTopic(topic=self.wanted.topic, topic_id=topic_id, partitions=[asked])],
        )
        connection.send(request)
        return connection

    def _ask_ahead(self) -> None:
        try:
            self._asked = self._ask()
        except ClientError:
            # Told again, and dealt with, when the reply is wanted.
            self._asked = None

    def _receive(self) -> PartitionData:
        connection = self._asked if self._asked is not None else self._ask()
        self._asked = None
        try:
            reply = connection.receive(FetchResponse, timeout_ms=WAIT_MS + self.timeout_ms)
        except BaseException:
            connection.close()
            raise
        check(reply.error_code, f"fetching from {connection.address}")
        for answer in (answer for topic in reply.responses for answer in topic.partitions):
            if answer.partition_index == self.wanted.partition:
                return answer
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(self.wanted), f"{connection.address} left it out")

    def _chunk(self, answer: PartitionData) -> Chunk | None:
        records = answer.records
        if not records:
            return None
        assert not isinstance(records, FileSlice)
        covered, size = extent(records, self.position)
        if covered <= self.position and len(records) < HEADER_BYTES:
            return None
        if size:
            self._offset_bytes = size / max(1, covered - self.position)
        aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or []]
        return Chunk(records, self.position, max(covered, self.position), aborted)

    def _skip_deleted(self) -> None:
        """The position lies outside the log: report it and go to the next place where something is to be had."""
        place = (self.wanted.topic, self.wanted.partition)
        reader = OffsetReader(self.cluster, Assign((place,)), READ_UNCOMMITTED)
        log_start, log_end = reader.earliest([place])[place], reader.latest([place])[place]
        if log_start <= self.position <= log_end:
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, self._remaining(), "the leader does not know its end yet")
        if self.position > log_end:
            self.report(f"{self._remaining()}: the partition now ends at {log_end}; it was truncated or made again")
            self.position = self.wanted.end
            return
        gone_to = min(log_start, self.wanted.end)
        self.report(
            f"{place[0]} partition {place[1]}: offsets {self.position} to {gone_to} were deleted (by retention, or by"
            " request) before they were read"
        )
        self.position = gone_to

    def _is_gone(self) -> bool:
        """Whether the topic is another one now, or none."""
        described = self.cluster.look_up(self.wanted.topic)
        if self.wanted.topic_id in (NO_ID, described.id):
            return False
        self.report(f"{self._remaining()}: the topic was deleted and made again before they were read")
        return True

    def _report_vanished(self) -> None:
        """The end was beyond what the leader has, all the time that a task waits."""
        self.report(f"{self._remaining()}: the leader has not shown them within {self.timeout_ms / 1000:g} s")

    def _remaining(self) -> str:
        return f"{self.wanted.topic} partition {self.wanted.partition}, offsets {self.position} to {self.wanted.end}"


def extent(records: Buffer, start: int) -> tuple[int, int]:
    """One past the last offset of the whole batches (`start` if there are none), and their size."""
    position, covered, size = 0, start, len(records)
    unpack = _EXTENT.unpack_from
    while size - position >= HEADER_BYTES:
        base_offset, length, last_offset_delta = unpack(records, position)
        if length < HEADER_BYTES - PREFIX_BYTES or length > size - position - PREFIX_BYTES:
            break
        position += length + PREFIX_BYTES
        covered = base_offset + last_offset_delta + 1
    return max(covered, start), position
