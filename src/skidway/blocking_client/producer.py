"""Writing: records gathered into batches, one batch per partition and request, sent again when that is safe.

With acks=all the producer is idempotent where the broker can do it: a batch that is sent twice because its reply got
lost is stored once. `send` returns when the record is in a batch; `flush` when every batch is acknowledged.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from skidway.blocking_client.cluster import Cluster, NoSuchPartition
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import (
    LACKS_CONTROLLER,
    BadReply,
    BrokerError,
    ClientError,
    ConnectionLost,
    RecordsRefused,
    ReplyTimeout,
    Unsupported,
    check,
)
from skidway.blocking_client.partitioners import Sticky, partition_of_key
from skidway.errors import ErrorCode
from skidway.limits import INT32_MAX, KIB
from skidway.ports import Buffer
from skidway.records.record import Headers, Record, build_batch
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skidway.wire.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
BATCH_BYTES = 256 * KIB
BATCH_RECORDS_MAX = 50_000
OF_A_RECORD = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Refusals that are about what is in a batch: the topic may take other records of it."""
RECORD_OVERHEAD_BYTES = 16
"""An upper guess of what a record takes beside its key, value and headers."""


@dataclass(slots=True)
class Delivered:
    """One acknowledged batch. Offsets are -1 with acks=0: nobody said."""

    topic: str
    partition: int
    base_offset: int
    records: int
    bytes: int
    log_append_time_ms: int = -1


@dataclass(slots=True)
class _Filling:
    """The batch of a partition that still takes records."""

    records: list[Record] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class _Outgoing:
    topic: str
    partition: int
    batch: Buffer
    records: int
    source: list[Record] = field(default_factory=list)
    """What is in it, to split it where it is too large; empty for a batch built elsewhere."""
    sequence: int = -1


class Producer:
    """Not for several threads at once. Records of one partition stay in the order of their `send`s."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: int = 0,
        batch_bytes: int = BATCH_BYTES,
        idempotent: bool | None = None,
        create_topics: bool = False,
        on_delivered: Callable[[Delivered], None] | None = None,
        on_refused: Callable[[Record, BrokerError], None] | None = None,
    ) -> None:
        """`idempotent` None: if acks=all and the broker serves producer ids. `on_refused` hears of each record that its
        topic does not take, and the others go on; without it such a record raises, and with it its batch is lost."""
        assert acks in (-1, 0, 1)
        self.cluster = cluster
        self.acks = acks
        self.codec = codec
        self.batch_bytes = batch_bytes
        self.create_topics = create_topics
        self.on_delivered = on_delivered
        self.on_refused = on_refused
        self.delivered_records = 0
        self.delivered_bytes = 0
        self._idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self._required = idempotent is True
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._filling: dict[tuple[str, int], _Filling] = {}
        self._sticky: dict[str, Sticky] = {}

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Put a record into its partition's batch and say which partition that is. Full batches leave at once."""
        chosen = self._choose(topic, key, partition)
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name) * 4 + len(content or b"") + 4
        filling = self._batch_of(topic, chosen)
        full = filling.bytes + size > self.batch_bytes or len(filling.records) >= BATCH_RECORDS_MAX
        if filling.records and full:
            self.flush()
            if key is None and partition is None:
                self._sticky[topic].batch_full(self.cluster.topic(topic).partitions)
                chosen = self._choose(topic, key, partition)
            filling = self._batch_of(topic, chosen)
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        filling.records.append(Record(0, now_ms, key, value, headers))
        filling.bytes += size
        return chosen

    def send_now(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> tuple[int, int]:
        """One record, acknowledged: its partition and offset."""
        self.flush()
        chosen = self.send(topic, value, key=key, headers=headers, partition=partition)
        return chosen, self.flush()[0].base_offset

    def flush(self) -> list[Delivered]:
        """Send what has been gathered and wait for the acknowledgements. What cannot be delivered raises."""
        outgoing = [self._close(topic, partition, filling) for (topic, partition), filling in self._filling.items()]
        self._filling.clear()
        delivered: list[Delivered] = []
        waiting = outgoing

        def attempt() -> None:
            nonlocal waiting
            waiting = self._send_all(waiting, delivered)

        try:
            while waiting:
                self.cluster.retrying(attempt, topics={one.topic for one in outgoing})
        except BaseException:
            # The lost batches leave a hole in the sequences; a new producer id has none.
            self._producer = None
            self._sequences.clear()
            raise
        return delivered

    def send_batch(self, topic: str, partition: int, batch: Buffer, records: int) -> Delivered:
        """A batch built elsewhere, delivered as it is."""
        delivered: list[Delivered] = []
        one = [_Outgoing(topic, partition, batch, records)]
        self.cluster.retrying(lambda: self._send_all(one, delivered), topics=[topic])
        return delivered[0]

    def _batch_of(self, topic: str, partition: int) -> _Filling:
        filling = self._filling.get((topic, partition))
        if filling is None:
            filling = self._filling[topic, partition] = _Filling()
        return filling

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        partitions = self.cluster.topic(topic, create=self.create_topics).partitions
        if partition is not None:
            if partition not in partitions:
                raise NoSuchPartition(topic, partition, len(partitions))
            return partition
        if key is not None:
            return partition_of_key(key, len(partitions))
        sticky = self._sticky.get(topic)
        if sticky is None:
            sticky = self._sticky[topic] = Sticky()
        return sticky.choose(partitions)

    def _close(self, topic: str, partition: int, filling: _Filling) -> _Outgoing:
        """The batch gets its bytes, and its place in the producer's sequence, once: a retry sends the same bytes."""
        producer_id, _ = self._identity()
        sequence = -1
        if producer_id >= 0:
            sequence = self._sequences.get((topic, partition), 0)
            self._sequences[topic, partition] = (sequence + len(filling.records)) & INT32_MAX
        return self._build(topic, partition, filling.records, sequence)

    def _build(self, topic: str, partition: int, records: list[Record], sequence: int) -> _Outgoing:
        producer_id, epoch = self._identity()
        batch = build_batch(
            records, codec=self.codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return _Outgoing(topic, partition, batch, len(records), records, sequence)

    def _halves(self, one: _Outgoing) -> list[_Outgoing]:
        """The same records in two batches, with the same sequence numbers: the broker took none of them."""
        middle = len(one.source) // 2
        sequence = one.sequence if one.sequence < 0 else (one.sequence + middle) & INT32_MAX
        return [
            self._build(one.topic, one.partition, one.source[:middle], one.sequence),
            self._build(one.topic, one.partition, one.source[middle:], sequence),
        ]

    def _identity(self) -> tuple[int, int]:
        if not self._idempotent:
            return -1, -1
        if self._producer is None:
            try:
                self._producer = self.cluster.retrying(self._ask_identity)
            except Unsupported:
                if self._required:
                    raise
                self._idempotent = False
                return -1, -1
        return self._producer

    def _ask_identity(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        reply = self.cluster.any_broker().call(request, InitProducerIdResponse)
        # Ids are given out by the controller: whoever is asked has found none.
        lacking = reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = f"no controller can be reached: {LACKS_CONTROLLER}" if lacking else None
        check(reply.error_code, "asking for a producer id", message)
        return reply.producer_id, reply.producer_epoch

    def _send_all(self, outgoing: Sequence[_Outgoing], delivered: list[Delivered]) -> list[_Outgoing]:
        """One request per leader, with one batch per partition. Answers what is still to be sent; raises when nothing
        at all went through."""
        now: dict[tuple[str, int], _Outgoing] = {}
        for one in outgoing:
            now.setdefault((one.topic, one.partition), one)
        later = [one for one in outgoing if now[one.topic, one.partition] is not one]
        by_leader: dict[Connection, list[_Outgoing]] = {}
        for one in now.values():
            by_leader.setdefault(self.cluster.leader(one.topic, one.partition), []).append(one)
        left: list[_Outgoing] = []
        dropped: set[tuple[str, int]] = set()
        stuck = 0
        trouble: ClientError | None = None
        for connection, batches in by_leader.items():
            try:
                failed = self._send_to(connection, batches, delivered)
            except (ConnectionLost, ReplyTimeout) as error:
                # Without a producer id nobody can tell whether the batch is stored: sending again could double it.
                if not self._idempotent and self.acks != 0:
                    raise
                left, stuck, trouble = [*left, *batches], stuck + len(batches), ConnectionLost(str(error))
                for one in batches:
                    self.cluster.forget(one.topic)
                continue
            for one, refusal in failed:
                if self._is_splittable(one, refusal):
                    left += self._halves(one)
                    continue
                if refusal.code in OF_A_RECORD:
                    self._drop(one, refusal)
                    dropped.add((one.topic, one.partition))
                    continue
                left.append(one)
                stuck, trouble = stuck + 1, refusal
                self.cluster.forget(one.topic)
        if trouble is not None and stuck == len(now):
            raise trouble
        return [*left, *(self._moved_up(one) if (one.topic, one.partition) in dropped else one for one in later)]

    def _is_splittable(self, one: _Outgoing, refusal: BrokerError) -> bool:
        of_batch = refusal.code == ErrorCode.MESSAGE_TOO_LARGE or self.on_refused is not None
        return len(one.source) > 1 and refusal.code in OF_A_RECORD and of_batch

    def _drop(self, one: _Outgoing, refusal: BrokerError) -> None:
        """A batch of one record, which nobody has taken: its place in the sequence is the next one's."""
        assert self.on_refused is not None
        if one.sequence >= 0:
            key = (one.topic, one.partition)
            self._sequences[key] = (self._sequences[key] - 1) & INT32_MAX
        self.on_refused(one.source[0], refusal)

    def _moved_up(self, one: _Outgoing) -> _Outgoing:
        sequence = one.sequence if one.sequence < 0 else (one.sequence - 1) & INT32_MAX
        return self._build(one.topic, one.partition, one.source, sequence)

    def _send_to(
        self, connection: Connection, batches: Sequence[_Outgoing], delivered: list[Delivered]
    ) -> list[tuple[_Outgoing, BrokerError]]:
        """Answers what is not done with: batches that met a passing trouble, are too large and can be split, or are
        refused where somebody wants to hear of it."""
        connection.send(self._request(batches), answered=self.acks != 0)
        if self.acks == 0:
            for one in batches:
                self._count(one, -1, -1, delivered)
            return []
        reply = connection.receive(ProduceResponse)
        names = {self.cluster.topic(one.topic).id: one.topic for one in batches}
        waiting = {(one.topic, one.partition): one for one in batches}
        failed: list[tuple[_Outgoing, BrokerError]] = []
        refused: BrokerError | None = None
        for answered in reply.responses:
            topic = answered.name or names.get(bytes(answered.topic_id), "")
            for answer in answered.partition_responses:
                if (topic, answer.index) not in waiting:
                    continue
                one = waiting.pop((topic, answer.index))
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._count(one, answer.base_offset, answer.log_append_time_ms, delivered)
                    continue
                error = _refusal(one, answer)
                is_heard = self.on_refused is not None and error.code in OF_A_RECORD and one.source
                if error.retriable or is_heard or self._is_splittable(one, error):
                    failed.append((one, error))
                else:
                    refused = refused or error
        if refused is not None:
            raise refused  # after all answers were read: what the other partitions took is counted
        if waiting:
            raise BadReply(f"{connection.address} left partitions out of its reply: {sorted(waiting)}")
        return failed

    def _request(self, batches: Sequence[_Outgoing]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for one in batches:
            by_topic.setdefault(one.topic, []).append(PartitionProduceData(index=one.partition, records=one.batch))
        topics = [
            TopicProduceData(name=topic, topic_id=self.cluster.topic(topic).id, partition_data=data)
            for topic, data in by_topic.items()
        ]
        return ProduceRequest(acks=self.acks, timeout_ms=self.cluster.timeout_ms, topic_data=topics)

    def _count(self, one: _Outgoing, base_offset: int, append_time_ms: int, delivered: list[Delivered]) -> None:
        receipt = Delivered(one.topic, one.partition, base_offset, one.records, len(one.batch), append_time_ms)
        delivered.append(receipt)
        self.delivered_records += one.records
        self.delivered_bytes += len(one.batch)
        if self.on_delivered is not None:
            self.on_delivered(receipt)


def _refusal(one: _Outgoing, answer: PartitionProduceResponse) -> BrokerError:
    about = f"{one.topic} partition {answer.index}"
    if not answer.record_errors:
        return BrokerError(answer.error_code, about, answer.error_message, partition=answer.index)
    records = [(entry.batch_index, entry.batch_index_error_message or "") for entry in answer.record_errors]
    index, why = records[0]
    message = answer.error_message or f"record {index}: {why}"
    return RecordsRefused(answer.error_code, about, message, records, partition=answer.index)
