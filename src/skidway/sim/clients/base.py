"""What every simulated client has: its place in the network, its brokers, and metadata it refreshes when it is stale.

Clients are sans-I/O like the node: they send real frames and go on when an answer or a timer comes. `stop` ends one for
good; an answer that comes later finds nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skidway.errors import ErrorCode
from skidway.sim.clients.wires import Brokers
from skidway.sim.world.events import MS, Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.message import Message
from skidway.wire.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

REFRESH_MS_MIN = 40
REFRESH_MS = 3_000


@dataclass(slots=True)
class KnownTopic:
    topic_id: bytes
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> (leader, its epoch)."""


class Client:
    def __init__(self, world: World, network: Network, place: str, seeds: list[Address], topics: list[str]) -> None:
        self.world = world
        self.place = place
        self.random = world.stream(f"{place} client")
        self.brokers = Brokers(world, network, place, seeds)
        self.topics = topics
        self.known: dict[str, KnownTopic] = {}
        self.stopped = False
        self._refreshing = False
        self._refresh_after_us = 0
        self._wanted = False

    def start(self) -> None:
        self.refresh()
        self.every(REFRESH_MS, self.refresh)

    def stop(self) -> None:
        self.stopped = True
        self.brokers.drop()

    # --- time ---

    def after(self, delay_ms: float, step: Callable[[], None]) -> None:
        def due() -> None:
            if not self.stopped:
                step()

        self.world.after(int(delay_ms * MS), due)

    def every(self, interval_ms: float, step: Callable[[], None]) -> None:
        def again() -> None:
            step()
            self.after(interval_ms * (0.5 + self.random.random()), again)

        self.after(interval_ms * self.random.random(), again)

    # --- asking ---

    def ask(self, node_id: int, request: Message, respond: Callable[[Any], None], timeout_ms: int = 5_000) -> None:
        def answered(reply: Any) -> None:
            if not self.stopped:
                respond(reply)

        self.brokers.ask(node_id, request, answered, timeout_ms)

    def say(self, what: str) -> None:
        self.world.say(self.place, what)

    # --- metadata ---

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """(leader, epoch), both -1 when not known."""
        known = self.known.get(topic)
        return (-1, -1) if known is None else known.leaders.get(partition, (-1, -1))

    def refresh(self) -> None:
        """Soon, and not more than one at a time."""
        if self._refreshing or self.stopped:
            return
        self._refreshing = True
        wait_us = max(0, self._refresh_after_us - self.world.now_us)
        self.after(wait_us / MS, self._ask_metadata)

    def _ask_metadata(self) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in self.topics], allow_auto_topic_creation=False
        )
        self.ask(-1, request, self._on_metadata, 2_000)

    def _on_metadata(self, reply: MetadataResponse | None) -> None:
        self._refreshing = False
        self._refresh_after_us = self.world.now_us + REFRESH_MS_MIN * MS
        if reply is None:
            self.refresh()
            return
        if not reply.brokers:
            raise Violation("brokers-named", f"{self.place} got a Metadata response without any broker")
        self.brokers.addresses = {broker.node_id: (broker.host, broker.port) for broker in reply.brokers}
        for topic in reply.topics:
            if topic.error_code or topic.name is None:
                continue
            known = self.known.get(topic.name)
            if known is None or known.topic_id != topic.topic_id:
                known = self.known[topic.name] = KnownTopic(topic.topic_id)
            for partition in topic.partitions:
                self._learn(known, partition.partition_index, partition.leader_id, partition.leader_epoch)
        self.on_metadata()

    def _learn(self, known: KnownTopic, index: int, leader: int, epoch: int) -> None:
        """A broker that lags behind must not take back what a better informed one said."""
        if epoch >= known.leaders.get(index, (-1, -1))[1]:
            known.leaders[index] = (leader, epoch)

    def on_metadata(self) -> None:
        """Overridden by who waits for it."""


ROUTING_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Ask again, with fresh metadata."""
