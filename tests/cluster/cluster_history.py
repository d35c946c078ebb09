"""What the clients of a cluster were told, and whether it is true afterwards.

`Writer`s (librdkafka, idempotent, acks=all) send values nobody else sends and write down every delivery report.
`Follower`s read along and write down what they saw. `History.check` reads everything once more and looks for what a
history of a log can have wrong: lost, moved, doubled, out of order, never sent, seen and then gone.
"""

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from standstill import LastWords

PATIENCE_S = 90.0
CLOSE_S = 60.0
UNANSWERED_MAX = 500
Place = tuple[str, int]
Log = dict[int, bytes]
QUICK = {
    # A machine that hangs or is cut off is noticed within seconds and not after a minute.
    "socket.timeout.ms": 4_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


@dataclass
class History:
    acknowledged: dict[Place, Log] = field(default_factory=lambda: defaultdict(dict))
    sent: dict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    somewhere: dict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Acknowledged, it was not said where."""
    seen: dict[Place, Log] = field(default_factory=lambda: defaultdict(dict))
    failures: list[str] = field(default_factory=list)
    """Messages that were given up: they may be there or not."""
    wrong: list[str] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        return len(self.acknowledged_at)

    def acknowledge(self, place: Place, offset: int | None, value: bytes) -> None:
        """Without an offset where librdkafka knows only from a later answer that the message is there."""
        with self.lock:
            self.acknowledged_at.append(time.monotonic())
            if offset is None:
                self.somewhere[place].add(value)
            elif self.acknowledged[place].setdefault(offset, value) != value:
                self.wrong.append(f"{place}: two messages were acknowledged at offset {offset}")

    def see(self, place: Place, offset: int, value: bytes | None) -> None:
        with self.lock:
            if value is None:
                self.wrong.append(f"{place}: offset {offset} was read without a value, which nobody sends")
            elif self.seen[place].setdefault(offset, value) != value:
                self.wrong.append(f"{place}: offset {offset} was read with two values")

    def longest_gap_s(self, since: float) -> float:
        """Between two acknowledgements, the last one before `since` included."""
        with self.lock:
            times = self.acknowledged_at[max(0, bisect_left(self.acknowledged_at, since) - 1) :]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def check(self, bootstrap: str) -> int:
        """All of it is true, also while writers go on; returns how many acknowledged messages were looked for."""
        with self.lock:
            told = {place: dict(log) for place, log in self.acknowledged.items()}
            seen = {place: dict(log) for place, log in self.seen.items()}
            somewhere = {place: set(values) for place, values in self.somewhere.items()}
            places = {place for place, values in self.sent.items() if values}
        found = read_all(bootstrap, places)
        problems = list(self.wrong)
        for place in sorted(places):
            with self.lock:
                sent = set(self.sent[place])
            problems += _strange(place, found[place], sent)
            problems += _missing(place, found[place], told.get(place, {}), seen.get(place, {}))
            for value in somewhere.get(place, set()) - set(found[place].values()):
                problems.append(f"{place}: {short(value)}, acknowledged, is lost")
            problems += _disorder(place, found[place])
        assert not problems, f"{len(problems)} wrong: " + "; ".join(problems[:10])
        return sum(len(log) for log in told.values()) + sum(len(values) for values in somewhere.values())


def _strange(place: Place, found: Log, sent: set[bytes]) -> Iterable[str]:
    at: dict[bytes, int] = {}
    for offset, value in found.items():
        if value in at:
            yield f"{place}: {short(value)} is there twice, at {at[value]} and {offset}"
        at[value] = offset
        if value not in sent:
            yield f"{place}: {short(value)} at {offset} was never sent"


def _missing(place: Place, found: Log, told: Log, seen: Log) -> Iterable[str]:
    there = set(found.values())
    for offset, value in told.items():
        if found.get(offset) != value:
            what = "is elsewhere" if value in there else "is lost"
            yield f"{place}: {short(value)}, acknowledged at {offset}, {what}; there is {short(found.get(offset))}"
    for offset, value in seen.items():
        if found.get(offset) != value:
            yield f"{place}: {short(value)} was read at {offset}, where {short(found.get(offset))} is now"


def _disorder(place: Place, found: Log) -> Iterable[str]:
    last: dict[bytes, int] = {}
    for offset in sorted(found):
        name, number, _ = found[offset].split(b":", 2)
        if int(number) <= last.get(name, -1):
            yield f"{place}: {name!r} has {int(number)} at {offset}, after {last[name]}"
        last[name] = int(number)


def short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value[:24])


def read_all(bootstrap: str, places: Iterable[Place], **more: Any) -> dict[Place, Log]:
    """Every record there is; `more` are settings of the consumer, which reads committed records unless they say so."""
    wanted = sorted(places)
    found: dict[Place, Log] = {place: {} for place in wanted}
    consumer = Consumer(
        {**QUICK, "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        | {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        | {key.replace("_", "."): value for key, value in more.items()}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in wanted])
        unread, deadline = set(wanted), time.monotonic() + PATIENCE_S
        while unread:
            assert time.monotonic() < deadline, f"{sorted(unread)} could not be read to their ends"
            for message in consumer.consume(1_000, 0.2):
                error, value = message.error(), message.value()
                if error is None:
                    place, offset = place_of(message), offset_of(message)
                    assert value is not None, f"{place}: offset {offset} has no value, which nobody sends"
                    found[place][offset] = value
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place_of(message))
    finally:
        close(consumer)
    return found


def place_of(message: Message) -> Place:
    """Of a record, and of the note that a partition ends; other errors need not be about a partition."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def offset_of(record: Message) -> int:
    offset = record.offset()
    assert offset is not None
    return offset


def close(consumer: Consumer) -> None:
    """librdkafka 2.16 can lock itself out for good: one of its threads asks for metadata and holds the lock of a
    partition (whose OffsetForLeaderEpoch was refused), another gives up a broker and wants that. Seen once, with gdb.
    """
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    if closing.is_alive():
        print(f"a consumer of librdkafka does not close within {CLOSE_S:g} s; it is left behind")


class Writer:
    """Messages at a steady rate over all partitions of a topic, whatever happens to the cluster."""

    def __init__(
        self, bootstrap: str, history: History, name: str, topic: str, partitions: int, rate: float = 200.0, **more: Any
    ) -> None:
        self.history = history
        self.name = name.encode()
        self.topic = topic
        self.partitions = partitions
        self.rate = rate
        self.sent = 0
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "message.timeout.ms": 120_000}
        settings |= {"request.timeout.ms": 3_000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200}
        settings |= {"bootstrap.servers": bootstrap, "error_cb": self._on_error}
        self.words = LastWords()
        self.producer = Producer({**QUICK, **settings, **self.words.settings, **more})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _write(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                due = max(due + 1 / self.rate, time.monotonic() - 0.1)
                self.producer.poll(max(0.0, due - time.monotonic()))
                if len(self.producer) < UNANSWERED_MAX:
                    self._send()
        except KafkaException as error:
            self.history.failures.append(f"{self.name!r} gave up: {error}")

    def _on_error(self, error: KafkaError) -> None:
        """Most of these pass; after a fatal one the producer takes nothing more."""
        if error.fatal():
            self.history.failures.append(f"{self.name!r}: {error}")

    def _send(self) -> None:
        self.sent += 1
        partition = self.sent % self.partitions
        value = b"%s:%d:%s" % (self.name, self.sent, bytes(self.sent * 37 % 400))
        with self.history.lock:
            self.history.sent[self.topic, partition].add(value)
        self.producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.history.failures.append(f"{self.name!r}: {error}")
        else:
            self.history.acknowledge((message.topic(), message.partition()), message.offset(), message.value())

    def finish(self) -> None:
        """Stop, and see every message delivered."""
        self.__exit__()
        left = self.producer.flush(PATIENCE_S)
        assert left == 0, f"{left} messages of {self.name!r} were left undelivered although the cluster is up"


class Follower:
    """Reads a topic to its end and further while it is written, without a group."""

    def __init__(self, bootstrap: str, history: History, topic: str, partitions: int) -> None:
        self.history = history
        self.consumer = Consumer(
            {**QUICK, "bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False}
            | {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
        )
        self.consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        close(self.consumer)

    def _read(self) -> None:
        next_offset: dict[Place, int] = {}
        while not self._stop.is_set():
            for message in self.consumer.consume(500, 0.1):
                if message.error() is None:
                    place, offset = place_of(message), offset_of(message)
                    if offset != next_offset.get(place, offset):
                        self.history.wrong.append(f"{place}: {offset} was read after {next_offset[place] - 1}")
                    next_offset[place] = offset + 1
                    self.history.see(place, offset, message.value())
