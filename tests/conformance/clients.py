"""What the tests ask of a Kafka client: one small face over confluent-kafka, kafka-python and aiokafka.

Each adapter uses its client as an application would. Broker errors come out as `Refused` with the protocol's error
code, so that a test can say which error it expects of every client at once. Consumers are assigned by hand, without a
group: nothing here needs a group coordinator.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BEGINNING = -2
END = -1
ANSWER_TIMEOUT_S = 30.0

Operation = Literal["SET", "DELETE", "APPEND", "SUBTRACT"]
Isolation = Literal["read_committed", "read_uncommitted"]
OffsetSpec = Literal["earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"] | int


class Refused(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code
        self.message = message


class NotInThisClient(Exception):
    """The client has no such call; the test that needs it is skipped with this as the reason."""


@dataclass(frozen=True)
class Message:
    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True)
class Placement:
    partition: int
    offset: int


@dataclass(frozen=True)
class Received:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: int
    """0 = the producer's time, 1 = the broker's"""


@dataclass(frozen=True)
class ProducerOptions:
    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    linger_ms: int = 5
    request_bytes_max: int = 20_000_000


@dataclass(frozen=True)
class ConsumerOptions:
    reset: Literal["earliest", "latest", "none"] = "none"
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes: int = 1_048_576
    isolation: Isolation | None = None
    """None: as the client does unless told."""


@dataclass(frozen=True)
class Synonym:
    name: str
    value: str | None
    source: int


@dataclass(frozen=True)
class Config:
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...] = ()


@dataclass(frozen=True)
class Partition:
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    id: int
    host: str
    port: int


@dataclass(frozen=True)
class Cluster:
    id: str | None
    controller: int
    nodes: tuple[Node, ...]


class Producer(ABC):
    @abstractmethod
    def send(self, topic: str, messages: Sequence[Message]) -> list[Placement]:
        """Sends all, waits for all; `Refused` if any was refused."""


class Consumer(ABC):
    @abstractmethod
    def assign(self, topic: str, positions: Mapping[int, int]) -> None: ...

    @abstractmethod
    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    @abstractmethod
    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Received]:
        """The next `count` messages, or those that came before time ran out."""

    @abstractmethod
    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        """Partition to the first offset at or after the time, END where there is none."""

    @abstractmethod
    def watermarks(self, topic: str, partition: int) -> tuple[int, int]: ...


class Admin(ABC):
    @abstractmethod
    def create(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def grow(self, name: str, partitions: int, validate_only: bool = False) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def describe(self, name: str) -> dict[int, Partition]: ...

    @abstractmethod
    def cluster(self) -> Cluster: ...

    @abstractmethod
    def configs(self, name: str) -> dict[str, Config]: ...

    @abstractmethod
    def replace_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """The old call: what is not named goes back to its default."""

    @abstractmethod
    def change_configs(self, name: str, changes: Sequence[tuple[Operation, str, str | None]]) -> None: ...

    @abstractmethod
    def delete_records(self, name: str, before: Mapping[int, int]) -> dict[int, int]: ...

    @abstractmethod
    def list_offsets(self, name: str, specs: Mapping[int, OffsetSpec]) -> dict[int, tuple[int, int]]:
        """Partition to (offset, timestamp)."""


class Client(ABC):
    name: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def lacks_codec(self, codec: str) -> str | None:
        """Why this client cannot use the codec here, or None."""

    @abstractmethod
    def producer(self, options: ProducerOptions) -> AbstractContextManager[Producer]: ...

    @abstractmethod
    def consumer(self, options: ConsumerOptions) -> AbstractContextManager[Consumer]: ...

    @abstractmethod
    def admin(self) -> AbstractContextManager[Admin]: ...

    def produce(self, topic: str, messages: Sequence[Message], **options: object) -> list[Placement]:
        with self.producer(ProducerOptions(**options)) as producer:  # type: ignore[arg-type]
            return producer.send(topic, messages)

    def read(self, topic: str, positions: Mapping[int, int], count: int, **options: object) -> list[Received]:
        with self.consumer(ConsumerOptions(**options)) as consumer:  # type: ignore[arg-type]
            consumer.assign(topic, positions)
            return consumer.take(count)
