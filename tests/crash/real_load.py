"""Producers that load a real broker and remember every acknowledgement, and the reading back that compares.

Values say who sent them and in which order: `name:number:padding`. A `Ledger` knows what was acknowledged where; after
a crash `Ledger.verify` reads every partition and looks for it by value, order and offset.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError
from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.records.record import Record, build_batch, read_records
from skidway.testing import Broker
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

WINDOW = 8
PATIENCE_S = 90.0
NAMED_PRODUCE, NAMED_FETCH = 12, 12
EARLIEST = -2
Place = tuple[str, int]


def connect(broker: Broker) -> Connection:
    return Connection(Address(broker.host, broker.port))


def await_true(check: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.005)


class Ledger:
    def __init__(self) -> None:
        self.acknowledged: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.errors: list[str] = []
        self.deleted_to: dict[Place, int] = defaultdict(int)
        self.count = 0
        self._lock = threading.Lock()

    def acknowledge(self, place: Place, base_offset: int, values: list[bytes]) -> None:
        with self._lock:
            told = self.acknowledged[place]
            for offset, value in enumerate(values, base_offset):
                if told.setdefault(offset, value) != value:
                    self.errors.append(f"{place}: offset {offset} was told twice")
            self.count += 1

    def snapshot(self) -> dict[Place, dict[int, bytes]]:
        with self._lock:
            return {place: dict(told) for place, told in self.acknowledged.items()}

    def verify(self, broker: Broker) -> int:
        """Everything acknowledged so far is where it was said to be; returns how many records were compared."""
        assert self.errors == []
        compared = 0
        with connect(broker) as connection:
            for place, told in self.snapshot().items():
                start, found = read_partition(connection, *place)
                offsets = list(found)
                assert offsets == list(range(offsets[0], offsets[-1] + 1)) if offsets else True, f"{place} has holes"
                lost = {at: value for at, value in told.items() if at >= start and found.get(at) != value}
                assert not lost, f"{place}: {len(lost)} of {len(told)} lost or changed, first {min(lost)}: {lost}"
                assert start <= self.deleted_to[place], f"{place} begins at {start}"
                assert_ordered(place, found.values())
                compared += sum(at >= start for at in told)
        return compared


def assert_ordered(place: Place, values: Iterable[bytes]) -> None:
    """Nobody's message is there twice or before an earlier one of the same sender."""
    last: dict[bytes, int] = {}
    for value in values:
        name, number, _ = value.split(b":", 2)
        assert int(number) > last.get(name, -1), f"{place}: {name!r} has {number!r} after {last[name]}"
        last[name] = int(number)


def start_offset(connection: Connection, topic: str, partition: int) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, EARLIEST)])
    (answer,) = connection.call(ListOffsetsRequest(-1, 0, [asked]), ListOffsetsResponse).topics[0].partitions
    assert answer.error_code == ErrorCode.NONE, (topic, partition, ErrorCode(answer.error_code).name)
    return answer.offset


def read_partition(connection: Connection, topic: str, partition: int) -> tuple[int, dict[int, bytes]]:
    """(start offset, every record up to the high watermark)"""
    offset = start = start_offset(connection, topic, partition)
    found: dict[int, bytes] = {}
    while True:
        asked = FetchTopic(
            topic, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=4 << 20)]
        )
        connection.send(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked]), version=NAMED_FETCH)
        (answer,) = connection.receive(FetchResponse).responses[0].partitions
        assert answer.error_code == ErrorCode.NONE, (topic, partition, ErrorCode(answer.error_code).name)
        data = bytes(answer.records or b"")  # type: ignore[arg-type]
        if not data:
            assert offset == answer.high_watermark, f"{topic}-{partition} ends at {offset} of {answer.high_watermark}"
            return start, found
        for position, header in iter_headers(data):
            for record in read_records(data[position : position + header.size], decompressed_bytes_max=1 << 26):
                if record.offset >= offset:
                    found[record.offset] = record.value or b""
            offset = header.last_offset + 1


def produce_request(topic: str, partition: int, values: list[bytes], acks: int) -> ProduceRequest:
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, value) for value in values])
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
    return ProduceRequest(None, acks, 30_000, [data])


def produce_once(connection: Connection, topic: str, partition: int, values: list[bytes], acks: int) -> tuple[int, int]:
    """(error code, base offset)"""
    connection.send(produce_request(topic, partition, values, acks), version=NAMED_PRODUCE)
    (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
    return answer.error_code, answer.base_offset


class RawProducer(threading.Thread):
    """Keeps some requests in flight on one connection until the broker goes away."""

    def __init__(self, broker: Broker, ledger: Ledger, name: str, topic: str, partition: int, acks: int) -> None:
        super().__init__(name=name, daemon=True)
        self.broker = broker
        self.ledger = ledger
        self.place = (topic, partition)
        self.acks = acks
        self.sent = 0
        self.random = Random(name)
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with connect(self.broker) as connection:
                self._load(connection)
        except ClientError:
            pass  # The broker is gone: what it has not answered may or may not be there.
        except BaseException as error:
            self.failure = error

    def _load(self, connection: Connection) -> None:
        waiting: list[list[bytes]] = []
        while True:
            while len(waiting) < WINDOW:
                values = [self._value() for _ in range(self.random.randrange(1, 8))]
                connection.send(produce_request(*self.place, values, self.acks), version=NAMED_PRODUCE)
                waiting.append(values)
            (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
            if answer.error_code != ErrorCode.NONE:
                self.ledger.errors.append(f"{self.place}: {ErrorCode(answer.error_code).name}")
                return
            self.ledger.acknowledge(self.place, answer.base_offset, waiting.pop(0))

    def _value(self) -> bytes:
        self.sent += 1
        return b"%s:%d:%s" % (self.name.encode(), self.sent, bytes(self.random.randrange(600)))


class IdempotentProducer:
    """librdkafka with its retries, over as many restarts as there are."""

    def __init__(self, broker: Broker, ledger: Ledger, name: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer

        self.ledger = ledger
        self.name = name
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._load, name=name, daemon=True)
        self._thread.start()

    def _load(self) -> None:
        while not self._stop.is_set():
            if len(self.producer) > 200:
                self.producer.poll(0.02)
                continue
            self.sent += 1
            value = b"%s:%d:%s" % (self.name.encode(), self.sent, bytes(200))
            self.producer.produce(self.topic, value, partition=self.sent % self.partitions, on_delivery=self._delivered)
            self.producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.ledger.errors.append(f"{self.topic}: {error}")
        else:
            place = (message.topic(), message.partition())  # type: ignore[attr-defined]
            self.ledger.acknowledge(place, message.offset(), [message.value()])  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Every message sent is delivered in the end."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self.producer.flush(PATIENCE_S) == 0, "messages were left undelivered although the broker is up"
