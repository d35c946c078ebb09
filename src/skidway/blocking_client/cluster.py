"""The cluster as a client sees it: brokers, topics, who leads which partition, one connection to each broker.

What a broker refuses for the moment (leadership moved, a topic still being made) is tried again until the deadline;
what it refuses for good is raised at once.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from skidway.blocking_client.addresses import Address, parse_bootstrap
from skidway.blocking_client.connection import REPLY_BYTES_MAX, REPLY_TIMEOUT_MS, Connection, Reply
from skidway.blocking_client.controller_watch import await_controller
from skidway.blocking_client.errors import (
    STALE_METADATA,
    BrokerError,
    ClientError,
    ConnectionLost,
    NoController,
    NotReady,
    Refused,
    ReplyTimeout,
    Unreachable,
    Unsupported,
    check,
)
from skidway.errors import ErrorCode
from skidway.wire.message import Message
from skidway.wire.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

RETRY_PAUSE_MS = 20
RETRY_PAUSE_MS_MAX = 500
ELECTION_WAIT_MS = 1_000
HUNG_MS = 2_000
"""A node that does not answer within this is asked again only when no other answers."""
NO_LEADER = "no leader; it is offline or quarantined, see the log of the broker"

Result = TypeVar("Result")


@dataclass(slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]
    error: int = 0


@dataclass(slots=True)
class Topic:
    name: str
    id: bytes
    internal: bool
    partitions: dict[int, Partition]


@dataclass(slots=True)
class Picture:
    """The last answer to a metadata request."""

    cluster_id: str | None = None
    controller: int = -1
    brokers: dict[int, Address] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)


class Cluster:
    """Not for several threads at once. Connections are made when first needed."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "skidway",
        timeout_ms: int = REPLY_TIMEOUT_MS,
        controller_wait_ms: int | None = None,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        """`controller_wait_ms`: how long there may be no controller before that is an error; None: `timeout_ms`."""
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.controller_wait_ms = timeout_ms if controller_wait_ms is None else controller_wait_ms
        self.reply_bytes_max = reply_bytes_max
        self.picture = Picture()
        self._connections: dict[Address, Connection] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connect(self, address: Address, *, first_answer_ms: int | None = None) -> Connection:
        """The open connection to a broker, made anew if the last one broke."""
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = Connection(
                address,
                client_id=self.client_id,
                reply_timeout_ms=self.timeout_ms if first_answer_ms is None else first_answer_ms,
                reply_bytes_max=self.reply_bytes_max,
            )
            connection.reply_timeout_ms = self.timeout_ms
            self._connections[address] = connection
        return connection

    def any_broker(self) -> Connection:
        """Whoever answers first: open connections, then known brokers, then the bootstrap list."""
        for connection in self._connections.values():
            if not connection.closed and not connection.awaited:
                return connection
        failures: dict[Address, ClientError] = {}
        began = time.monotonic()
        candidates = list(dict.fromkeys([*self.picture.brokers.values(), *self.bootstrap]))
        found = self._first_answering(candidates, HUNG_MS if len(candidates) > 1 else self.timeout_ms, failures)
        hung = [address for address, error in failures.items() if isinstance(error, ReplyTimeout)]
        left_ms = self.timeout_ms - int((time.monotonic() - began) * 1000)
        if found is None and hung and left_ms > 0:
            found = self._first_answering(hung, left_ms // len(hung), failures)
        if found is not None:
            return found
        waiting = [address for address, error in failures.items() if isinstance(error, ConnectionLost)]
        refusing = [address for address, error in failures.items() if isinstance(error, Refused)]
        others = [str(Refused(refusing))] if refusing else []
        rest = (error for address, error in failures.items() if address not in waiting and address not in refusing)
        others += dict.fromkeys(map(str, rest))
        if waiting:
            raise NotReady(waiting, others)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise Unreachable("; ".join(others))

    def _first_answering(
        self, addresses: Iterable[Address], patience_ms: int, failures: dict[Address, ClientError]
    ) -> Connection | None:
        for address in addresses:
            try:
                return self._connect_answering(address, patience_ms)
            except (Unreachable, ConnectionLost, ReplyTimeout) as error:
                failures[address] = error
        return None

    def _connect_answering(self, address: Address, patience_ms: int) -> Connection:
        """A node without a majority of the voters takes connections, and hangs up at the first real question. One that
        hangs takes them too, and is silent."""
        known = self._connections.get(address)
        patience_ms = min(patience_ms, self.timeout_ms)
        connection = self.connect(address, first_answer_ms=patience_ms)
        if connection is known:
            return connection
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            reply = connection.call(request, MetadataResponse, timeout_ms=patience_ms)
        except Unsupported:
            return connection  # whatever it is there for, it may answer that
        if reply.error_code:
            connection.close()
            raise ConnectionLost(str(BrokerError(reply.error_code, f"asking {address} for the cluster's metadata")))
        return connection

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> Picture:
        """Ask for the brokers and some topics (None: all of them). Topics with errors are left out of the picture."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        reply = self.any_broker().call(request, MetadataResponse)
        check(reply.error_code, "asking for the cluster's metadata")
        self.picture.cluster_id = reply.cluster_id
        self.picture.controller = reply.controller_id
        self.picture.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in reply.brokers}
        if asked is None:
            self.picture.topics.clear()
        for described in reply.topics:
            self._learn(described)
        return self.picture

    def _learn(self, described: MetadataResponseTopic) -> None:
        name = described.name or ""
        if described.error_code:
            self.picture.topics.pop(name, None)
            return
        partitions = {
            entry.partition_index: Partition(
                index=entry.partition_index,
                leader=entry.leader_id,
                leader_epoch=entry.leader_epoch,
                replicas=list(entry.replica_nodes),
                in_sync=list(entry.isr_nodes),
                offline=list(entry.offline_replicas),
                error=entry.error_code,
            )
            for entry in sorted(described.partitions, key=lambda entry: entry.partition_index)
        }
        self.picture.topics[name] = Topic(name, bytes(described.topic_id), described.is_internal, partitions)

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic that is known or can be found; BrokerError when it is not there."""
        known = self.picture.topics.get(name)
        return known if known is not None else self.look_up(name, create=create)

    def look_up(self, name: str, *, create: bool = False) -> Topic:
        """Ask for one topic, whatever is known already."""
        self.picture.topics.pop(name, None)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)

        def ask() -> Topic:
            reply = self.any_broker().call(request, MetadataResponse)
            self.picture.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in reply.brokers}
            self.picture.controller = reply.controller_id
            for described in reply.topics:
                code = described.error_code
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                    raise NoSuchTopic(name)
                check(code, f"topic {name}")
                self._learn(described)
            if name not in self.picture.topics:
                raise NoSuchTopic(name)
            return self.picture.topics[name]

        return self.retrying(ask)

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the broker that leads a partition; LEADER_NOT_AVAILABLE (worth a retry) if none does."""
        described = self.topic(topic).partitions.get(partition)
        if described is None:
            raise NoSuchPartition(topic, partition, len(self.topic(topic).partitions))
        address = self.picture.brokers.get(described.leader)
        if address is None:
            self.forget(topic)
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic} partition {partition}")
        try:
            return self.connect(address)
        except Unreachable:
            self.forget(topic)
            raise

    def unserved(self, topic: str, partitions: Iterable[int]) -> dict[int, str]:
        """Which of the partitions have no leader that answers, and why; an election is given a moment to end."""
        wanted = list(partitions)
        deadline = time.monotonic() + min(ELECTION_WAIT_MS, self.timeout_ms) / 1000
        while True:
            described = self.topic(topic).partitions
            leaders = {index: described[index].leader for index in wanted if index in described}
            obstacles = {leader: self._obstacle(leader) for leader in set(leaders.values())}
            found = {index: reason for index, leader in leaders.items() if (reason := obstacles[leader])}
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(RETRY_PAUSE_MS / 1000)
            self.forget(topic)

    def _obstacle(self, leader: int) -> str | None:
        """Why partitions of this leader cannot be read."""
        if leader < 0:
            return NO_LEADER
        address = self.picture.brokers.get(leader)
        if address is None:
            return f"its leader, node {leader}, is not up"
        try:
            self.connect(address, first_answer_ms=min(HUNG_MS, self.timeout_ms))
        except (Unreachable, ConnectionLost, ReplyTimeout) as error:
            return f"its leader is node {leader}: {error}"
        return None

    def controller(self) -> Connection:
        """Where admin requests go. A broker that is not the controller passes them on, so any will do at need."""
        if not self.picture.brokers:
            self.refresh([])
        address = self.picture.brokers.get(self.picture.controller)
        if address is not None:
            try:
                return self._connect_answering(address, HUNG_MS)
            except (Unreachable, ConnectionLost, ReplyTimeout):
                self.picture.controller = -1  # gone, and another one is elected meanwhile
        return self.any_broker()

    def ask_controller(self, request: Message, reply: type[Reply]) -> Reply:
        """`NoController` when nobody answers: the node that was asked looks for a controller for as long as we wait."""
        return self.ask_for_controller(self.controller(), request, reply, self.timeout_ms)

    def ask_for_controller(
        self, connection: Connection, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Ask a node what only the controller can answer."""
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            connection.send(request)
            if self.controller_wait_ms < timeout_ms:
                await_controller(connection, self.controller_wait_ms, deadline)
            return connection.receive(reply, timeout_ms=max(1, round((deadline - time.monotonic()) * 1000)))
        except NoController:
            connection.close()  # whatever is answered there now is not waited for
            raise
        except ReplyTimeout:
            raise NoController(timeout_ms, connection.address) from None

    def forget(self, topic: str) -> None:
        """What was known about a topic is out of date: the next question asks again."""
        self.picture.topics.pop(topic, None)

    def retrying(
        self, attempt: Callable[[], Result], *, topics: Iterable[str] = (), timeout_ms: int | None = None
    ) -> Result:
        """Call until it works, the broker refuses for good, or the time is up. `topics`: looked up again on the way."""
        began = time.monotonic()
        patience_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        pause_ms = RETRY_PAUSE_MS
        while True:
            try:
                return attempt()
            except (BrokerError, ConnectionLost, Unreachable) as error:
                again = error.retriable if isinstance(error, BrokerError) else self._known_alive(error)
                wait_ms = min(patience_ms, self.controller_wait_ms) if isinstance(error, NotReady) else patience_ms
                if not again or time.monotonic() + pause_ms / 1000 > began + wait_ms / 1000:
                    raise
                if not isinstance(error, BrokerError) or error.code in STALE_METADATA:
                    for topic in topics:
                        self.forget(topic)
            time.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, RETRY_PAUSE_MS_MAX)

    def _known_alive(self, error: ClientError) -> bool:
        """A cluster that answered before may come back; a first connection that fails is a wrong address."""
        return isinstance(error, ConnectionLost) or bool(self.picture.brokers)


class NoSuchTopic(BrokerError):
    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}", "there is no such topic")
        self.topic = topic

    @property
    def retriable(self) -> bool:
        return False


class NoSuchPartition(BrokerError):
    def __init__(self, topic: str, partition: int, count: int) -> None:
        text = f"there is no such partition; the topic has {count} (0 to {count - 1})"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} partition {partition}", text)

    @property
    def retriable(self) -> bool:
        return False
