"""confluent-kafka in memory, for what a real one cannot be made to do on command: to die at any given step.

One partition or more of one topic, a committed position per partition, a dead-letter list; all of that outlives the
client. `World.steps` counts every call that changes something, and `World.die_at` ends the process at one of them,
before or after it took effect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class Died(BaseException):
    """Like SIGKILL: nothing may catch it."""


@dataclass
class World:
    log: dict[int, list[bytes]]
    committed: dict[int, int] = field(default_factory=dict)
    letters: list[tuple[bytes, dict[str, bytes]]] = field(default_factory=list)
    steps: int = 0
    die_at: int | None = None
    after: bool = False
    """Die when the step has had its effect but nobody heard of it."""
    refusals: list[Any] = field(default_factory=list)
    """Errors for the next deliveries."""

    def step(self, effect: Callable[[], None]) -> None:
        self.steps += 1
        if self.steps == self.die_at and not self.after:
            raise Died
        effect()
        if self.steps == self.die_at:
            raise Died


class Error:
    _TRANSPORT = _ALL_BROKERS_DOWN = _RESOLVE = _TIMED_OUT = -195
    _PARTITION_EOF = _MAX_POLL_EXCEEDED = UNKNOWN_TOPIC_OR_PART = _UNKNOWN_TOPIC = -191
    _MSG_TIMED_OUT = -192

    def __init__(self, code: int, *, retriable: bool = False) -> None:
        self._code, self._retriable = code, retriable

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def retriable(self) -> bool:
        return self._retriable

    def str(self) -> str:
        return f"error {self._code}"


class KafkaException(Exception):
    pass


class TopicPartition:
    def __init__(self, topic: str, partition: int, offset: int = -1) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


@dataclass
class Message:
    place: tuple[str, int]
    at: int
    content: bytes

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.content

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000 + self.at)


class Consumer:
    def __init__(self, world: World) -> None:
        self.world = world
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        self.assigned = True
        self.turn = 0

    def subscribe(self, topics: list[str], on_revoke: Any, on_lost: Any) -> None:
        self.topic, self.on_revoke, self.on_lost = topics[0], on_revoke, on_lost
        self.positions = {partition: self.world.committed.get(partition, 0) for partition in self.world.log}

    def poll(self, timeout: float) -> Message | None:
        partitions = sorted(self.world.log)
        for _ in partitions:
            self.turn = (self.turn + 1) % len(partitions)
            partition = partitions[self.turn]
            position = self.positions[partition]
            if partition not in self.paused and position < len(self.world.log[partition]):
                self.positions[partition] += 1
                return Message((self.topic, partition), position, self.world.log[partition][position])
        return None

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {one.partition for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {one.partition for one in partitions}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        self.world.step(lambda: self.world.committed.update({one.partition: one.offset for one in offsets}))

    def rebalance(self, *, lost: bool) -> None:
        """Everything is taken and given back: reading goes on at what is committed. Like librdkafka, it does not
        resume what was paused."""
        partitions = [TopicPartition(self.topic, partition) for partition in self.world.log]
        (self.on_lost if lost else self.on_revoke)(self, partitions)
        self.positions = {partition: self.world.committed.get(partition, 0) for partition in self.world.log}

    def close(self) -> None:
        pass


class Producer:
    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[Callable[[], None]] = []

    def produce(self, topic: str, value: bytes, key: Any, headers: Any, on_delivery: Any) -> None:
        def deliver() -> None:
            if self.world.refusals:
                on_delivery(self.world.refusals.pop(0), None)
                return
            self.world.step(lambda: self.world.letters.append((value, dict(headers))))
            on_delivery(None, None)

        self.waiting.append(deliver)

    def poll(self, timeout: float) -> None:
        waiting, self.waiting = self.waiting, []
        for deliver in waiting:
            deliver()

    def flush(self, timeout: float) -> None:
        self.poll(0)


def module(world: World) -> Any:
    """What stands in for the module `confluent_kafka`."""
    return SimpleNamespace(
        Consumer=lambda config: Consumer(world),
        Producer=lambda config: Producer(world),
        TopicPartition=TopicPartition,
        KafkaError=Error,
        KafkaException=KafkaException,
    )
