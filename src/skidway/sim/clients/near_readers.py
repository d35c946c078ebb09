"""Readers that name their rack and read from a replica there (KIP-392), as the leader tells them.

A reader asks the leader first, stays with the replica it is sent to for a while, and goes back to the leader when that
one refuses or lags behind what was read already. Whatever a follower serves must be committed; all laws of readers hold
across the change from one to the other.
"""

from __future__ import annotations

from skidway.errors import ErrorCode
from skidway.sim.clients.readers import Partition, Position, Reader
from skidway.sim.laws.history import History
from skidway.sim.world.events import MS, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.fetch import PartitionData

STAY_MS = 2_000
"""Real ones stay for five minutes."""


class NearReader(Reader):
    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        partitions: dict[str, int],
        history: History,
        rack: str,
    ) -> None:
        super().__init__(world, network, place, seeds, partitions, history)
        self.history = history
        self.rack = rack
        self._preferred: dict[Partition, tuple[int, int]] = {}
        """A replica, and until when."""

    def source_of(self, partition: Partition) -> int:
        replica, until_us = self._preferred.get(partition, (-1, 0))
        if until_us > self.world.now_us and replica in self.brokers.addresses:
            return replica
        return super().source_of(partition)

    def is_lost(self, partition: Partition) -> bool:
        return partition in self._preferred and self._preferred[partition][0] not in self.brokers.addresses

    def on_silence(self, source: int) -> None:
        """Nobody answers there: whatever was read from it is read from the leaders."""
        self._preferred = {key: found for key, found in self._preferred.items() if found[0] != source}

    def _on_error(self, key: Partition, position: Position, data: PartitionData, source: int) -> None:
        preferred = self._preferred.pop(key, None)
        if preferred is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.mark("follower without what was read")
            return  # it lags behind; only the leader can say that it is gone
        super()._on_error(key, position, data, source)

    def _take(self, key: Partition, position: Position, data: PartitionData, leader_epoch: int, source: int) -> bool:
        if data.preferred_read_replica >= 0:
            self._preferred[key] = (data.preferred_read_replica, self.world.now_us + STAY_MS * MS)
            self.world.mark("sent to a nearer replica")
            return True
        before = position.offset
        readable = super()._take(key, position, data, leader_epoch, source)
        if not readable:
            self._preferred.pop(key, None)
        if position.offset > before and source != self.leader_of(*key)[0]:
            self.world.mark("read from a follower")
            topic_id = self.known[key[0]].topic_id
            self.history.served_by_follower(f"{self.place} by n{source}", topic_id, key[1], position.offset)
        return readable
