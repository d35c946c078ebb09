"""Damaged copies: tells the controller not to count on them.

A copy found damaged at the start is quarantined: neither served nor cut, and fetched anew as soon as nobody may be
elected for it. The controller is told that it is lost (`lost_copies`).

A copy found damaged later (`found`: a follower, a compaction or a coordinator came upon it) is served on until another
replica leads. The controller is asked for that by an AlterPartition whose in-sync set lacks this node; it refuses where
no other replica is known to have everything. When another leads, in a new leader epoch, the copy is quarantined:
nothing this node fetched before can bring it back into the in-sync set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skidway.broker.asking import PARTITIONS_PER_REQUEST_MAX, Ask
from skidway.broker.partitions.lost_copies import LostCopies
from skidway.broker.partitions.news import CopyRestored
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.petitions import REFUSED_RETRY_MS, Petitioner
from skidway.broker.world import World
from skidway.errors import CorruptMessage, DamagedLog
from skidway.log.health import Damage
from skidway.metadata.image import Image
from skidway.ports import FileSlice
from skidway.records.batch import crc_matches, iter_headers
from skidway.replica.news import CopyDamaged, Remedy
from skidway.runtime.timers import Timer
from skidway.wire.message import Message
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

LOOK_MS = 1_000
"""Between two looks whether a copy that was given up is in sync again."""
UNKNOWN_EPOCH = -1
"""Of brokers about which nothing is said but that they stay in sync."""


class DamagedCopies(Petitioner[Partition]):
    """Asks to have others lead in the place of copies that are served on."""

    def __init__(
        self,
        world: World,
        image: Image,
        ask: Ask,
        broker_epoch: Callable[[], int],
        directory_id: bytes,
        on_quarantine: Callable[[Partition], None],
    ) -> None:
        """`on_quarantine` is told before nobody may use a copy any more."""
        super().__init__(world, ask)
        self._broker_epoch = broker_epoch
        self._on_quarantine = on_quarantine
        self._found: dict[Partition, tuple[str, int]] = {}
        """Those that were sound at the start: what is wrong, and in which leader epoch it was found."""
        self._lamented: set[Partition] = set()
        """Those without another replica that an operator has heard of."""
        self._given_up: set[Partition] = set()
        """Those nobody can read, until they are fetched anew: the operator hears when they are."""
        self.lost = LostCopies(world, image, ask, broker_epoch, directory_id, self._given_up)
        self._look_timer: Timer | None = None

    def found(self, partition: Partition, damage: str) -> None:
        """A part of its log that was stored long ago is not what it was."""
        if partition.removed or partition.log.failure is not None or partition in self._found:
            return
        if partition.alone:
            self._lament(partition, damage)
            return
        self._found[partition] = damage, partition.role.leader_epoch
        self._world.report(CopyDamaged(str(partition), damage, Remedy.FETCH_LATER))
        self.on_role_changed(partition)

    def _lament(self, partition: Partition, damage: str) -> None:
        """Once: clients may ask for the damaged part again and again."""
        if partition not in self._lamented:
            self._lamented.add(partition)
            self._world.report(CopyDamaged(str(partition), damage, Remedy.RESTORE))

    def on_role_changed(self, partition: Partition) -> None:
        """It was opened, has another leader, or the metadata says something new about a quarantined one."""
        self._due.pop(partition, None)
        if partition in self._found and self._is_given_up(partition):
            damage, _ = self._found.pop(partition)
            self._on_quarantine(partition)
            partition.quarantine(Damage(damage))
        if partition.log.quarantined and not partition.alone:
            self._given_up.add(partition)
            self._arm_look()
        self.lost.on_role_changed(partition)
        if partition in self._found:
            self._ask_about(partition)

    def on_removed(self, partition: Partition) -> None:
        self.lost.on_removed(partition)
        self._found.pop(partition, None)
        self._due.pop(partition, None)
        self._given_up.discard(partition)
        self._lamented.discard(partition)

    def _arm_look(self) -> None:
        if self._given_up and (self._look_timer is None or not self._look_timer.armed):
            self._look_timer = self._world.timers.at(self._world.clock.monotonic_ms() + LOOK_MS, self._look)

    def _look(self) -> None:
        node_id = self._world.settings.node_id
        for partition in list(self._given_up):
            if not partition.log.quarantined and node_id in partition.role.in_sync:
                self._given_up.discard(partition)
                self._world.report(CopyRestored(str(partition)))
        self._arm_look()

    def _is_given_up(self, partition: Partition) -> bool:
        """Nobody counts on it, and nothing that was said about it before counts any more."""
        role = partition.role
        return role.leader >= 0 and not partition.counted_on and role.leader_epoch > self._found[partition][1]

    def _is_replaceable(self, partition: Partition) -> bool:
        """Whether somebody else can lead at once."""
        role, node_id = partition.role, self._world.settings.node_id
        others = [member for member in role.in_sync if member != node_id] or role.eligible_leaders
        return any(other in role.eligible for other in others if other != node_id)

    def _request(self, due: list[Partition], now_ms: int) -> tuple[list[Partition], Message] | None:
        asked = [partition for partition in due if self._is_replaceable(partition)][:PARTITIONS_PER_REQUEST_MAX]
        self._due.update({partition: now_ms + REFUSED_RETRY_MS for partition in due if partition not in asked})
        if not asked:
            return None
        topics: dict[bytes, RequestTopicData] = {}
        for partition in asked:
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id, []))
            topic.partitions.append(_without(partition, self._world.settings.node_id))
        node_id = self._world.settings.node_id
        return asked, AlterPartitionRequest(node_id, self._broker_epoch(), list(topics.values()))

    def _errors(self, response: Message) -> Iterator[tuple[bytes, int, int]]:
        if isinstance(response, AlterPartitionResponse):
            for topic in response.topics:
                for answer in topic.partitions:
                    yield topic.topic_id, answer.partition_index, answer.error_code


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
