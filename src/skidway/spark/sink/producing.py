"""Ready-encoded batches delivered to their partitions, each stored once and in order, with several on the way.

One object per task attempt, with a producer id of its own. A batch gets its sequence when it is put; a batch that is
sent again is the same bytes, so the broker stores it once whatever became of the first reply. When one batch of a
partition fails, those behind it wait until all replies are in and then go again in order. What a broker refuses for
good, or what is not acknowledged within the delivery timeout, raises DeliveryFailed: nothing put after the last
`flush` counts as delivered then.

One thread, blocking. `put` queues and blocks only while more than `buffer_bytes` are unacknowledged; `pump` sends and
receives what it can without waiting; `flush` returns when all is acknowledged.
"""

import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.cluster import Cluster, Topic
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import (
    BadReply,
    BrokerError,
    ClientError,
    ConnectionLost,
    ReplyTimeout,
    Unreachable,
)
from skidway.blocking_client.transactions import Producer
from skidway.errors import ErrorCode
from skidway.limits import INT32_MAX, MIB
from skidway.records.record import build_batch, open_batch, unpack_records
from skidway.spark.codec.encoding import EncodedBatch, stamp_producer
from skidway.spark.sink.identity import Identity
from skidway.spark.sink.lanes import RETRY_PAUSE_S, RETRY_PAUSE_S_MAX, Lane, Outgoing
from skidway.spark.sink.options import SinkOptions
from skidway.wire.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
WAIT_S = 1.0
"""Deadlines are looked at this often while nothing arrives."""
BATCH_BYTES_MIN = 512
REQUEST_BYTES = 4 * MIB
"""Where a request that has batches of several partitions is full."""
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
STORED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class DeliveryFailed(Exception):
    """A batch that could not be delivered; the text names topic, partition and reason."""

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        super().__init__(f"cannot write to {topic}-{partition}: {reason}")


@dataclass(slots=True)
class Receipt:
    """What one partition acknowledged. Offsets are those of this producer's first batch and behind its last one."""

    records: int = 0
    bytes: int = 0
    start_offset: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class _Request:
    lanes: list[Lane]
    topics: dict[bytes, str]
    sent_at: float


@dataclass(slots=True)
class _Link:
    """A connection and the requests it has not answered, oldest first."""

    connection: Connection
    requests: deque[_Request] = field(default_factory=deque)


class BatchProducer:
    def __init__(self, options: SinkOptions, take: Callable[[], Producer] | None = None) -> None:
        """`take` gives the transactional id under which all batches are written; it is called before the first one."""
        self.options = options
        self.receipts: dict[tuple[str, int], Receipt] = {}
        self.unacknowledged_bytes = 0
        # Questions go over connections of their own: those of the links have replies outstanding.
        self.cluster: Cluster = options.client.cluster()
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._busy: dict[tuple[str, int], Lane] = {}
        self._links: dict[Address, _Link] = {}
        self._stale: set[str] = set()
        self._refresh_at = 0.0
        self._refresh_pause_s = RETRY_PAUSE_S
        self._batch_bytes: dict[str, int] = {}
        self._identity = Identity(self.cluster, take)

    def __enter__(self) -> "BatchProducer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self.cluster.close()

    def topic(self, name: str) -> Topic:
        """The topic as the brokers describe it; created by asking for it where the brokers do that.

        A broker that is not there yet is waited for as long as a topic: it may be restarting.
        """
        known = self.cluster.picture.topics.get(name)
        if known is not None:
            return known
        deadline = time.monotonic() + self.options.topic_wait_ms / 1000
        while True:
            failed: ClientError
            try:
                found = self._ask_topic(name)
                if found is not None:
                    return found
                failed = ClientError(
                    f"topic {name} does not exist and the brokers did not create it when asked to; "
                    f"create it (skidway topic create {name}) or correct the name"
                )
            except Unreachable as error:
                failed = error
            if time.monotonic() > deadline:
                raise failed
            time.sleep(RETRY_PAUSE_S)

    def _ask_topic(self, name: str) -> Topic | None:
        try:
            return self.cluster.look_up(name)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return self.cluster.retrying(lambda: self.cluster.refresh([name], create=True)).topics.get(name)

    def batch_bytes(self, topic: str) -> int:
        """How large batches are to be: as configured, or less where a topic turned out not to take that."""
        return self._batch_bytes.get(topic, self.options.batch_bytes)

    def put(self, topic: str, partition: int, encoded: EncodedBatch) -> None:
        """Take a batch for delivery; it gets its place in the producer's sequence here, once."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = Lane(topic, partition)
        stamp_producer(encoded, *self._identity.find(), lane.sequence, transactional=self._identity.is_transactional)
        batch, records = encoded.buffer, encoded.records
        if len(batch) > self.options.request_bytes_max:
            limit = self.options.request_bytes_max
            text = f"a batch of {len(batch)} bytes ({records} rows) is above kafka.max.request.size ({limit})"
            raise DeliveryFailed(topic, partition, f"{text}; make the rows smaller")
        lane.sequence = (lane.sequence + records) & INT32_MAX
        deadline = time.monotonic() + self.options.delivery_timeout_ms / 1000
        lane.waiting.append(Outgoing(batch, records, deadline))
        self._busy[topic, partition] = lane
        self.unacknowledged_bytes += len(batch)
        while self.unacknowledged_bytes > self.options.buffer_bytes:
            self._turn(wait=True)

    def pump(self) -> None:
        self._turn(wait=False)

    def flush(self) -> None:
        while self._busy:
            self._turn(wait=True)

    def _turn(self, *, wait: bool) -> None:
        self._refresh_stale()
        self._send_ready()
        self._receive(self._patience_s() if wait else 0.0)
        self._check_deadlines()

    # Sending.

    def _send_ready(self) -> None:
        """Requests of one batch for each partition, until every link is full or nothing may go."""
        while True:
            chosen: dict[Address, list[Lane]] = {}
            sizes: dict[Address, int] = {}
            now = time.monotonic()
            for lane in self._busy.values():
                if not lane.waiting or lane.topic in self._stale:
                    continue
                address = self._leader(lane)
                if address is None or self._full(address) or not lane.ready(address, now):
                    continue
                size = sizes.get(address, 0) + len(lane.waiting[0].batch)
                if address in chosen and size > REQUEST_BYTES:
                    continue
                sizes[address] = size
                chosen.setdefault(address, []).append(lane)
            if not chosen:
                return
            for address, lanes in chosen.items():
                self._send(address, lanes)

    def _leader(self, lane: Lane) -> Address | None:
        picture = self.cluster.picture
        topic = picture.topics.get(lane.topic)
        described = topic.partitions.get(lane.partition) if topic is not None else None
        address = picture.brokers.get(described.leader) if described is not None else None
        if address is None:
            self._stale.add(lane.topic)
            lane.reason = "the partition has no leader" if described is not None else "the topic no longer exists"
        return address

    def _full(self, address: Address) -> bool:
        link = self._links.get(address)
        return link is not None and len(link.requests) >= self.options.in_flight_max

    def _send(self, address: Address, lanes: list[Lane]) -> None:
        try:
            link = self._link(address)
        except (ConnectionLost, ReplyTimeout, Unreachable) as error:
            self._postpone(lanes, str(error))
            return
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for lane in lanes:
            outgoing = lane.launch(address)
            by_topic.setdefault(lane.topic, []).append(PartitionProduceData(lane.partition, outgoing.batch))
        topics = self.cluster.picture.topics
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self.options.client.request_timeout_ms,
            topic_data=[TopicProduceData(name, topics[name].id, data) for name, data in by_topic.items()],
        )
        link.requests.append(_Request(lanes, {topics[name].id: name for name in by_topic}, time.monotonic()))
        try:
            link.connection.send(request)
        except (ConnectionLost, ReplyTimeout) as error:
            self._drop(address, str(error))

    def _link(self, address: Address) -> _Link:
        link = self._links.get(address)
        if link is None:
            client = self.options.client
            connection = Connection(address, client_id=client.client_id, reply_timeout_ms=client.request_timeout_ms)
            link = self._links[address] = _Link(connection)
        return link

    # Receiving.

    def _receive(self, timeout_s: float) -> None:
        """Take in the replies that have come, after waiting for the first at most so long."""
        links = {link.connection: address for address, link in self._links.items() if link.requests}
        if not links:
            time.sleep(timeout_s)
            return
        arrived = select.select(list(links), [], [], timeout_s)[0]
        for connection in arrived:
            self._take_replies(links[connection])
        now = time.monotonic()
        for address in links.values():
            link = self._links.get(address)
            if link is not None and link.requests and now > self._answer_due(link):
                self._drop(address, f"{address} did not answer within {self.options.client.request_timeout_ms} ms")

    def _take_replies(self, address: Address) -> None:
        link = self._links[address]
        while link.requests:
            try:
                reply = link.connection.receive(ProduceResponse)
            except (ConnectionLost, ReplyTimeout) as error:
                self._drop(address, str(error))
                return
            self._settle(link.requests.popleft(), reply, address)
            if not link.requests or not link.connection.readable(0.0):
                return

    def _settle(self, request: _Request, reply: ProduceResponse, address: Address) -> None:
        lanes = {(lane.topic, lane.partition): lane for lane in request.lanes}
        now = time.monotonic()
        for answered in reply.responses:
            topic = answered.name or request.topics.get(bytes(answered.topic_id), "")
            for answer in answered.partition_responses:
                lane = lanes.pop((topic, answer.index), None)
                if lane is not None:
                    self._judge(lane, answer)
                    lane.settle(now)
                    if lane.oldest() is None:
                        del self._busy[lane.topic, lane.partition]
        if lanes:
            raise BadReply(f"{address} left partitions out of its reply: {sorted(lanes)}")

    def _judge(self, lane: Lane, answer: PartitionProduceResponse) -> None:
        outgoing = lane.flying.popleft()
        if answer.error_code in STORED:
            lane.on_stored()
            self._acknowledge(lane, outgoing, answer.base_offset)
            return
        if answer.error_code in TOO_LARGE and outgoing.records > 1:
            self._split(lane, outgoing)
            return
        error = BrokerError(answer.error_code, f"{lane.topic}-{lane.partition}", _why(answer))
        # Behind a batch that was refused the sequence has a gap; that closes when both go again.
        gap = answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and bool(lane.refused)
        if not error.retriable and not gap:
            raise DeliveryFailed(lane.topic, lane.partition, _explain(error, outgoing)) from error
        lane.refuse(outgoing, str(error))
        self._stale.add(lane.topic)

    def _split(self, lane: Lane, outgoing: Outgoing) -> None:
        """A topic that takes only smaller batches gets two halves, which have the place of the whole in the sequence.

        Slow, so batches for that topic are encoded smaller from now on.
        """
        header, payload = open_batch(outgoing.batch, decompressed_bytes_max=INT32_MAX)
        smaller = min(self.batch_bytes(lane.topic), len(payload) // 2)
        self._batch_bytes[lane.topic] = max(smaller, BATCH_BYTES_MIN)
        records = list(unpack_records(header, payload))
        self.unacknowledged_bytes -= len(outgoing.batch)
        middle = len(records) // 2
        for part, before in ((records[:middle], 0), (records[middle:], middle)):
            half = build_batch(
                part,
                codec=header.codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=(header.base_sequence + before) & INT32_MAX,
                transactional=self._identity.is_transactional,
            )
            self.unacknowledged_bytes += len(half)
            lane.refuse(Outgoing(half, len(part), outgoing.deadline), "the batch is larger than the topic takes")

    def _acknowledge(self, lane: Lane, outgoing: Outgoing, base_offset: int) -> None:
        receipt = self.receipts.get((lane.topic, lane.partition))
        if receipt is None:
            receipt = self.receipts[lane.topic, lane.partition] = Receipt()
        receipt.records += outgoing.records
        receipt.bytes += len(outgoing.batch)
        self.unacknowledged_bytes -= len(outgoing.batch)
        if base_offset >= 0:
            receipt.start_offset = base_offset if receipt.start_offset < 0 else min(receipt.start_offset, base_offset)
            receipt.end_offset = max(receipt.end_offset, base_offset + outgoing.records)

    # Trouble.

    def _drop(self, address: Address, reason: str) -> None:
        """The connection is of no more use: whatever it did not answer goes again."""
        link = self._links.pop(address)
        link.connection.close()
        now = time.monotonic()
        for lane in {id(lane): lane for request in link.requests for lane in request.lanes}.values():
            while lane.flying:
                lane.refuse(lane.flying.popleft(), reason)
            lane.settle(now)
            self._stale.add(lane.topic)

    def _postpone(self, lanes: list[Lane], reason: str) -> None:
        now = time.monotonic()
        for lane in lanes:
            lane.reason = reason
            lane.rest(now)
            self._stale.add(lane.topic)

    def _refresh_stale(self) -> None:
        """Ask who leads now, not more often than the pauses allow."""
        now = time.monotonic()
        if not self._stale or now < self._refresh_at:
            return
        try:
            self.cluster.refresh(sorted(self._stale))
        except (BrokerError, ConnectionLost, ReplyTimeout, Unreachable) as error:
            for lane in self._busy.values():
                lane.reason = lane.reason or str(error)
            self._refresh_pause_s = min(self._refresh_pause_s * 2, RETRY_PAUSE_S_MAX)
        else:
            self._stale -= self.cluster.picture.topics.keys()
            self._refresh_pause_s = RETRY_PAUSE_S
        self._refresh_at = time.monotonic() + self._refresh_pause_s

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for lane in self._busy.values():
            oldest = lane.oldest()
            if oldest is not None and now > oldest.deadline:
                waited = f"not acknowledged within {self.options.delivery_timeout_ms} ms (kafka.delivery.timeout.ms)"
                raise DeliveryFailed(lane.topic, lane.partition, f"{waited}: {lane.reason or 'no reply came'}")

    def _answer_due(self, link: _Link) -> float:
        # The broker may use the time the request gave it; its reply needs a moment more.
        return link.requests[0].sent_at + self.options.client.request_timeout_ms / 1000 + RETRY_PAUSE_S_MAX

    def _patience_s(self) -> float:
        """How long a reply may be waited for before something else wants to be done."""
        now = time.monotonic()
        troubled = bool(self._stale) or any(lane.retry_at > now for lane in self._busy.values())
        return RETRY_PAUSE_S if troubled else WAIT_S


def _why(answer: PartitionProduceResponse) -> str | None:
    if answer.error_message or not answer.record_errors:
        return answer.error_message
    first = answer.record_errors[0]
    return f"row {first.batch_index} of the batch: {first.batch_index_error_message or 'refused'}"


def _explain(error: BrokerError, outgoing: Outgoing) -> str:
    if error.code in TOO_LARGE:
        rows = "a single row" if outgoing.records == 1 else f"{outgoing.records} rows"
        text = f"a batch of {len(outgoing.batch)} bytes ({rows}) is above the topic's max.message.bytes"
        return f"{text}; raise that, or write smaller rows or batches (kafka.batch.size) ({error.name})"
    return str(error).partition(": ")[2]
