"""Throughput through librdkafka, the client most programs outside Java use.

Producing goes to the librdkafka inside the confluent-kafka wheel by ctypes: `rd_kafka_produce_batch` takes thousands of
messages per call, so Python's cost per message does not set the limit. Every message must be acknowledged: failed
deliveries are asked for as events and counted, and the partitions' end offsets are compared with what was sent.
Consuming goes through confluent-kafka itself and includes the making of one Python object per message.
"""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import confluent_kafka

from bench.frames import BenchError, Peer

MESSAGES_PER_CALL = 5_000
PARTITIONS = 4
EVENT_DR = 1
QUEUE_FULL = -184
DRAIN_S_MAX = 10.0


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@dataclass(slots=True)
class Throughput:
    messages: int
    bytes: int
    elapsed_s: float


@cache
def library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise BenchError("this confluent-kafka has no librdkafka of its own")
    lib = ctypes.CDLL(str(found[0]))
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("conf_set", number, [pointer, text, text, text, size]),
        ("conf_set_events", None, [pointer, number]),
        ("new", pointer, [number, pointer, text, size]),
        ("topic_new", pointer, [pointer, text, pointer]),
        ("topic_destroy", None, [pointer]),
        ("produce_batch", number, [pointer, ctypes.c_int32, number, pointer, number]),
        ("flush", number, [pointer, number]),
        ("outq_len", number, [pointer]),
        ("queue_get_main", pointer, [pointer]),
        ("queue_poll", pointer, [pointer, number]),
        ("queue_destroy", None, [pointer]),
        ("event_type", number, [pointer]),
        ("event_message_count", size, [pointer]),
        ("event_destroy", None, [pointer]),
        ("destroy", None, [pointer]),
    ):
        function = getattr(lib, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


class Producer:
    """librdkafka's producer with default settings but for batch size and acks."""

    def __init__(self, bootstrap: str, topic: str, batch_bytes: int, acks: str) -> None:
        self.lib = library()
        said = ctypes.create_string_buffer(512)
        conf = self.lib.rd_kafka_conf_new()
        for key, value in {
            "bootstrap.servers": bootstrap,
            "batch.size": str(batch_bytes),
            "acks": acks,
            "linger.ms": "5",
            # Small enough that emptying the queue at the end takes little of the time measured.
            "queue.buffering.max.messages": "200000",
            "queue.buffering.max.kbytes": "32768",
            "delivery.report.only.error": "true",
            "log_level": "2",
        }.items():
            if self.lib.rd_kafka_conf_set(conf, key.encode(), value.encode(), said, 512):
                raise BenchError(f"librdkafka: {said.value.decode()}")
        self.lib.rd_kafka_conf_set_events(conf, EVENT_DR)
        self.handle = self.lib.rd_kafka_new(0, conf, said, 512)
        if not self.handle:
            raise BenchError(f"librdkafka: {said.value.decode()}")
        self.events = self.lib.rd_kafka_queue_get_main(self.handle)
        self.topic = self.lib.rd_kafka_topic_new(self.handle, topic.encode(), None)

    def failed(self, timeout_ms: int) -> int:
        """Deliveries that failed since the last call."""
        failed = 0
        while event := self.lib.rd_kafka_queue_poll(self.events, timeout_ms):
            if self.lib.rd_kafka_event_type(event) == EVENT_DR:
                failed += self.lib.rd_kafka_event_message_count(event)
            self.lib.rd_kafka_event_destroy(event)
            timeout_ms = 0
        return failed

    def run(self, value_bytes: int, seconds: float) -> tuple[int, float]:
        """Messages acknowledged, and the seconds it took until the last of them was."""
        value = ctypes.create_string_buffer(b"x" * value_bytes, value_bytes)
        messages = (_Message * MESSAGES_PER_CALL)()
        for one in messages:
            one.payload, one.len = ctypes.addressof(value), value_bytes
        taken = calls = failed = 0
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            many = self.lib.rd_kafka_produce_batch(self.topic, calls % PARTITIONS, 0, messages, MESSAGES_PER_CALL)
            if many < MESSAGES_PER_CALL:
                # The messages after the first that did not fit did not fit either.
                if messages[many].err != QUEUE_FULL:
                    raise BenchError(f"librdkafka refused a message: {messages[many].err}")
                failed += self.failed(2)
            taken += many
            calls += 1
        while self.lib.rd_kafka_outq_len(self.handle) and time.monotonic() < start + seconds + DRAIN_S_MAX:
            failed += self.failed(0)
            self.lib.rd_kafka_flush(self.handle, 5)
        elapsed = time.monotonic() - start
        failed += self.failed(0)
        waiting = self.lib.rd_kafka_outq_len(self.handle)
        if failed or waiting:
            raise BenchError(f"librdkafka: of {taken} messages {failed} failed and {waiting} were never answered")
        return taken, elapsed

    def close(self) -> None:
        self.lib.rd_kafka_topic_destroy(self.topic)
        self.lib.rd_kafka_queue_destroy(self.events)
        self.lib.rd_kafka_destroy(self.handle)


def ends(bootstrap: str, topic: str) -> int:
    with Peer(bootstrap) as peer:
        return sum(peer.end_offset(topic, partition) for partition in range(PARTITIONS))


def produce(
    bootstrap: str, topic: str, value_bytes: int, batch_bytes: int, seconds: float, on_start: Callable[[], None]
) -> Throughput:
    """With acks=1, to a topic of PARTITIONS partitions that nothing else writes to; on_start after the warm-up."""
    before = ends(bootstrap, topic)
    producer = Producer(bootstrap, topic, batch_bytes, "1")
    try:
        producer.run(value_bytes, 0.2)  # connect and learn the topic's leaders
        on_start()
        sent, elapsed = producer.run(value_bytes, seconds)
    finally:
        producer.close()
    grown = ends(bootstrap, topic) - before
    if grown < sent:
        raise BenchError(f"{topic}: {sent} messages were acknowledged, {grown} are there")
    return Throughput(sent, sent * value_bytes, elapsed)


def consume(bootstrap: str, topic: str, value_bytes: int, seconds: float) -> Throughput:
    """From the start of all partitions, until the end or until time is up."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 2}
    )
    present = ends(bootstrap, topic)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        count = 0
        start = 0.0
        while count < present:
            messages = consumer.consume(10_000, 1.0 if start else 10.0)
            if not messages:
                raise BenchError(f"{topic}: nothing more after {count} of {present} messages")
            # The clock starts with the first messages, which are not counted: connecting is not throughput.
            if not start:
                start = time.monotonic()
                present -= len(messages)
                continue
            count += len(messages)
            if messages[0].error() or len(messages[-1].value() or b"") != value_bytes:
                raise BenchError(f"{topic}: {messages[0].error() or 'a value of the wrong size'}")
            if time.monotonic() > start + seconds:
                break
        return Throughput(count, count * value_bytes, time.monotonic() - start)
    finally:
        consumer.close()
