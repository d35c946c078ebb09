"""Damaged copies: tells the controller not to count on them.

A copy found damaged at the start is quarantined: neither served nor cut, and fetched anew as soon as nobody may be
elected for it. Until then the controller is asked, by an AlterPartition whose in-sync set lacks this node, to have
another lead and to take this one for neither in sync nor eligible. It refuses where no other replica is known to have
everything: the partition is unavailable then, and this node asks again now and then, as an operator may have decided
otherwise.

A copy found damaged later (`found`: a follower, a compaction or a coordinator came upon it) is served on until another
replica leads. Then, and in a new leader epoch, it is quarantined: nothing this node fetched before can bring it back
into the in-sync set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.in_sync import PARTITIONS_PER_REQUEST_MAX, RETRY_MS, Ask
from skidway.errors import CorruptMessage, DamagedLog, ErrorCode
from skidway.ports import FileSlice
from skidway.records.batch import crc_matches, iter_headers
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

REFUSED_RETRY_MS = 5_000
LOOK_MS = 1_000
"""Between two looks whether a copy that was given up is in sync again."""
UNKNOWN_EPOCH = -1
"""Of brokers about which nothing is said but that they stay in sync."""


class DamagedCopies:
    def __init__(self, node: Node, ask: Ask) -> None:
        """`ask` reaches the active controller wherever it is."""
        self.node = node
        self.ask = ask
        self._found: dict[Partition, tuple[str, int]] = {}
        """Those that were sound at the start: what is wrong, and in which leader epoch it was found."""
        self._due: dict[Partition, int] = {}
        """Those the controller counts on, and when it is to be asked about them."""
        self._told: set[Partition] = set()
        """Those of which an operator knows that nobody can take over."""
        self._given_up: set[Partition] = set()
        """Those nobody can read, until they are fetched anew: the operator hears when they are."""
        self._asking = False
        self._timer: Timer | None = None
        self._look_timer: Timer | None = None

    def found(self, partition: Partition, damage: str) -> None:
        """A part of its log that was stored long ago is not what it was."""
        if partition.alone or partition.removed or partition.log.failure is not None or partition in self._found:
            return
        self._found[partition] = damage, partition.role.leader_epoch
        self.node.on_trouble(f"{partition}: damaged, to be fetched anew where another replica leads: {damage}")
        self.on_role_changed(partition)

    def on_role_changed(self, partition: Partition) -> None:
        """It was opened, has another leader, or the metadata says something new about a quarantined one."""
        self._due.pop(partition, None)
        if partition in self._found and self._is_given_up(partition):
            damage, _ = self._found.pop(partition)
            self.node.compactions.on_removed(partition)
            partition.quarantine(damage)
        if partition.log.quarantined and not partition.alone:
            self._given_up.add(partition)
            self._arm_look()
        is_in_the_way = partition.log.quarantined and partition.counted_on and not partition.alone
        if is_in_the_way or partition in self._found:
            self._due[partition] = self.node.clock.monotonic_ms()
            self._arm()
        else:
            self._told.discard(partition)

    def on_removed(self, partition: Partition) -> None:
        self._found.pop(partition, None)
        self._due.pop(partition, None)
        self._told.discard(partition)
        self._given_up.discard(partition)

    def _arm_look(self) -> None:
        if self._given_up and (self._look_timer is None or not self._look_timer.armed):
            self._look_timer = self.node.timers.at(self.node.clock.monotonic_ms() + LOOK_MS, self._look)

    def _look(self) -> None:
        node_id = self.node.settings.node_id
        for partition in list(self._given_up):
            if not partition.log.quarantined and node_id in partition.role.in_sync:
                self._given_up.discard(partition)
                self.node.on_event(f"{partition}: whole again, fetched anew and in sync")
        self._arm_look()

    def _is_given_up(self, partition: Partition) -> bool:
        """Nobody counts on it, and nothing that was said about it before counts any more."""
        role = partition.role
        return role.leader >= 0 and not partition.counted_on and role.leader_epoch > self._found[partition][1]

    def _is_replaceable(self, partition: Partition) -> bool:
        """Whether somebody else can lead at once. One that is quarantined serves nobody, and asks in any case."""
        role, node_id = partition.role, self.node.settings.node_id
        others = [member for member in role.in_sync if member != node_id] or role.eligible_leaders
        return partition.log.quarantined or any(other in role.eligible for other in others if other != node_id)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due and not self._asking:
            self._timer = self.node.timers.at(min(self._due.values()), self._send)

    def _send(self) -> None:
        node = self.node
        now_ms = node.clock.monotonic_ms()
        due = [partition for partition, due_ms in self._due.items() if due_ms <= now_ms]
        asked = [partition for partition in due if self._is_replaceable(partition)][:PARTITIONS_PER_REQUEST_MAX]
        self._due.update({partition: now_ms + REFUSED_RETRY_MS for partition in due if partition not in asked})
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


def refuse_damaged(partition: Partition, records: FileSlice, offset: int) -> None:
    """Look at batches that a follower got once and asks for again; DamagedLog when it was right not to take them."""
    end = 0
    try:
        data = memoryview(records.read())
        for position, header in iter_headers(data):
            if header.last_offset < offset or not crc_matches(data[position : position + header.size]):
                raise DamagedLog(f"the batch at offset {offset} of {partition} is damaged")
            offset, end = header.last_offset + 1, position + header.size
    except (CorruptMessage, OSError) as error:
        raise DamagedLog(f"no batch at offset {offset} of {partition}: {error}") from None
    if end != len(data):
        raise DamagedLog(f"the batch at offset {offset} of {partition} does not end where the next one begins")
