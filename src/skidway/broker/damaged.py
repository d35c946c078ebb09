"""Damaged copies: tells the controller not to count on them.

A copy that is quarantined is neither served nor cut, and it is fetched anew as soon as nobody may be elected for it.
Until then the controller is asked, by an AlterPartition whose in-sync set lacks this node, to have another lead and to
take this one for neither in sync nor eligible. It refuses where no other replica is known to have everything: the
partition is unavailable then, and this node asks again now and then, as an operator may have decided otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.runtime.timers import Timer
from skidway.wire.message import Message
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition

Ask = Callable[[Message, Callable[[Message | None], None], int], None]
PARTITIONS_PER_REQUEST_MAX = 1_000
RETRY_MS = 100
REFUSED_RETRY_MS = 5_000
UNKNOWN_EPOCH = -1
"""Of brokers about which nothing is said but that they stay in sync."""


class DamagedCopies:
    def __init__(self, node: Node, ask: Ask) -> None:
        """`ask` reaches the active controller wherever it is."""
        self.node = node
        self.ask = ask
        self._due: dict[Partition, int] = {}
        """Those the controller counts on, and when it is to be asked about them."""
        self._told: set[Partition] = set()
        """Those of which an operator knows that nobody can take over."""
        self._asking = False
        self._timer: Timer | None = None

    def on_role_changed(self, partition: Partition) -> None:
        """It was opened, or the metadata says something new about it."""
        if not partition.log.quarantined or partition.alone or not partition.counted_on:
            self.on_removed(partition)
            return
        self._due[partition] = self.node.clock.monotonic_ms()
        self._arm()

    def on_removed(self, partition: Partition) -> None:
        self._due.pop(partition, None)
        self._told.discard(partition)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due and not self._asking:
            self._timer = self.node.timers.at(min(self._due.values()), self._send)

    def _send(self) -> None:
        node = self.node
        now_ms = node.clock.monotonic_ms()
        asked = [partition for partition, due_ms in self._due.items() if due_ms <= now_ms][:PARTITIONS_PER_REQUEST_MAX]
        if not asked:
            self._arm()
            return
        topics: dict[bytes, RequestTopicData] = {}
        for partition in asked:
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id, []))
            topic.partitions.append(_without(partition, node.settings.node_id))
        request = AlterPartitionRequest(node.settings.node_id, node.broker_epoch, list(topics.values()))
        self._asking = True
        self.ask(request, lambda response: self._answered(asked, response), now_ms)

    def _answered(self, asked: list[Partition], response: Message | None) -> None:
        self._asking = False
        now_ms = self.node.clock.monotonic_ms()
        errors: dict[tuple[bytes, int], int] = {}
        if isinstance(response, AlterPartitionResponse):
            errors = {
                (bytes(topic.topic_id), answer.partition_index): answer.error_code
                for topic in response.topics
                for answer in topic.partitions
            }
        for partition in asked:
            if partition not in self._due:
                continue
            # What was done comes with the metadata, which ends the asking.
            wait_ms = RETRY_MS
            if errors.get((partition.topic_id, partition.index)) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                wait_ms = REFUSED_RETRY_MS
                self._tell(partition)
            self._due[partition] = now_ms + wait_ms
        self._arm()

    def _tell(self, partition: Partition) -> None:
        if partition in self._told:
            return
        self._told.add(partition)
        self.node.on_trouble(
            f"{partition} is unavailable: the copy here is damaged, and no other replica is known to have everything "
            "that was acknowledged. Start a replica that was in sync, or repair the files here and restart; or give up "
            "what the others lack: set unclean.leader.election.enable=true on the topic, and take it back afterwards"
        )


def _without(partition: Partition, node_id: int) -> RequestPartitionData:
    role = partition.role
    return RequestPartitionData(
        partition_index=partition.index,
        leader_epoch=role.leader_epoch,
        new_isr_with_epochs=[BrokerState(member, UNKNOWN_EPOCH) for member in role.in_sync if member != node_id],
        partition_epoch=role.partition_epoch,
    )
