"""Clients at a steady pace that write down when each acknowledgement came, so that a gap between two can be seen.

`Raw` has one request under way and tries again at once, everywhere, until the cluster answers: it shows the cluster's
own share of a gap. `Rdkafka` is librdkafka with its own defaults, `QuickRdkafka` with the pauses a service would set.
`Changes` writes metadata (a topic's config) the same way as `Raw` writes records.
"""

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

from bench.nodes import Nodes, address_of
from skidway.blocking_client.admin import SET, Admin, ConfigChange
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import RETRIABLE, BrokerError, ClientError, check
from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

NAMED_PRODUCE = 12
ACKS_ALL = -1
REQUEST_TIMEOUT_MS = 1_000
PAUSE_S = 0.002


class Steady(ABC):
    """Runs from `with` to the end of it; `errors` is what an application would have been told."""

    name: str
    rate = 200.0

    def __init__(self, nodes: Nodes, topic: str) -> None:
        self.nodes = nodes
        self.topic = topic
        self.acknowledged_at: list[float] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Steady":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...

    def gap_s(self, since: float, until: float) -> float:
        """The longest time between two acknowledgements; the first counted is the last one before `since`."""
        times = list(self.acknowledged_at)
        first = max(0, bisect_left(times, since) - 1)
        last = bisect_left(times, until)
        return max((later - earlier for earlier, later in pairwise([*times[first:last], until])), default=0.0)

    def acknowledged_since(self, moment: float) -> int:
        times = self.acknowledged_at
        return len(times) - bisect_left(times, moment)


class _Insistent(Steady):
    """One attempt after the other until each has worked, at most `rate` a second."""

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + 1 / self.rate, time.monotonic())
            while not self._stop.is_set():
                if self._attempt():
                    self.acknowledged_at.append(time.monotonic())
                    break
                time.sleep(PAUSE_S)
        self._close()

    def _attempt(self) -> bool:
        try:
            self._once()
        except BrokerError as error:
            if error.code not in RETRIABLE:
                self.errors.append(str(error))
            self._close()
            return False
        except ClientError:
            self._close()
            return False
        return True

    @abstractmethod
    def _once(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...


class Raw(_Insistent):
    name = "raw client"

    def __init__(self, nodes: Nodes, topic: str) -> None:
        super().__init__(nodes, topic)
        self._leader: Connection | None = None
        self._turn = 0

    def _once(self) -> None:
        if self._leader is None:
            self._leader = self._find()
        batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(100))])
        data = TopicProduceData(self.topic, partition_data=[PartitionProduceData(0, batch)])
        self._leader.send(ProduceRequest(None, ACKS_ALL, REQUEST_TIMEOUT_MS, [data]), version=NAMED_PRODUCE)
        reply = self._leader.receive(ProduceResponse, timeout_ms=2 * REQUEST_TIMEOUT_MS)
        check(reply.responses[0].partition_responses[0].error_code, self.topic)

    def _find(self) -> Connection:
        """From one node after the other: some of them may be gone."""
        numbers = self.nodes.up()
        self._turn += 1
        with Cluster(self.nodes.address(numbers[self._turn % len(numbers)]), timeout_ms=REQUEST_TIMEOUT_MS) as client:
            leader = client.refresh([self.topic]).topics[self.topic].partitions[0].leader
            if leader not in client.picture.brokers:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, self.topic)
        return Connection(address_of(self.nodes.address(leader)))

    def _close(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None


class Changes(_Insistent):
    name = "metadata changes"
    rate = 50.0

    def __init__(self, nodes: Nodes, topic: str) -> None:
        super().__init__(nodes, topic)
        self._turn = 0
        self._client: Cluster | None = None

    def _once(self) -> None:
        self._turn += 1
        if self._client is None:
            numbers = self.nodes.up()
            address = self.nodes.address(numbers[self._turn % len(numbers)])
            self._client = Cluster(address, timeout_ms=REQUEST_TIMEOUT_MS)
        changes = [ConfigChange("retention.ms", SET, str(10**9 + self._turn))]
        # Straight to the node: it passes the request on to whoever is the controller.
        Admin(self._client).alter_topic(self.topic, changes)

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Rdkafka(Steady):
    name = "librdkafka as it comes"
    settings: Mapping[str, object] = MappingProxyType({})

    def _run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.nodes.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "log_level": 0,
                **self.settings,
            }
        )
        due = time.monotonic()
        while not self._stop.is_set():
            due = max(due + 1 / self.rate, time.monotonic() - 0.05)
            producer.poll(max(0.0, due - time.monotonic()))
            with contextlib.suppress(BufferError):
                producer.produce(self.topic, bytes(100), partition=0, on_delivery=self._delivered)
        if left := producer.flush(30):
            self.errors.append(f"{left} messages were never acknowledged")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged_at.append(time.monotonic())


class QuickRdkafka(Rdkafka):
    name = "librdkafka, refresh 250 ms"
    settings = MappingProxyType(
        {
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            # It asks for the leader when a broker goes, then once a second (twice: the second answer counts if the
            # broker has left the list); asked for more often, it finds the new one sooner.
            "topic.metadata.refresh.interval.ms": 250,
            "topic.metadata.refresh.fast.interval.ms": 20,
        }
    )
