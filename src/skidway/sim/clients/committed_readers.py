"""Readers that get what is committed and nothing else (`read_committed`), as clients do it.

A leader tells them up to where everything is stable, and which transactions were aborted among what it sends; markers
in the log say where each of those ends.
"""

from __future__ import annotations

from collections import deque

from skidway.records.batch import BatchHeader
from skidway.records.control import read_marker
from skidway.sim.clients.readers import Partition, Position, Reader
from skidway.sim.laws.transactions import TransactionLaws
from skidway.sim.world.events import Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.fetch import PartitionData


class CommittedReader(Reader):
    isolation_level = 1

    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        partitions: dict[str, int],
        laws: TransactionLaws,
    ) -> None:
        super().__init__(world, network, place, seeds, partitions, laws.history)
        self.laws = laws

    def _take(self, key: Partition, position: Position, data: PartitionData, leader_epoch: int, source: int) -> bool:
        topic, index = key
        topic_id = self.known[topic].topic_id
        if data.diverging_epoch.epoch >= 0:
            raise Violation(
                "vanished", f"{self.place} has read {topic}-{index} below {position.offset}: {data.diverging_epoch}"
            )
        if source == self.leader_of(topic, index)[0]:
            self.laws.last_stable(self.place, topic_id, index, leader_epoch, data.last_stable_offset)
        position.end_offset = data.last_stable_offset
        start = position.offset
        got: dict[int, bytes] = {}
        aborted = self._aborted(key, data)
        active: set[int] = set()
        whole = True
        for header, batch, opened in self._batches(key, position, data):
            if opened is None:
                whole = False
                break
            if header.last_offset >= data.last_stable_offset:
                raise Violation(
                    "stable-reads",
                    f"{self.place} got {topic}-{index} at {header.last_offset}; stable is {data.last_stable_offset}",
                )
            if not is_hidden(header, batch, aborted, active):
                got.update(opened)
            position.offset = header.last_offset + 1
            position.epoch = header.partition_leader_epoch
        self.laws.read(self.place, topic_id, index, start, position.offset, got)
        return whole

    def _aborted(self, key: Partition, data: PartitionData) -> deque[tuple[int, int]]:
        """First offset and producer id."""
        found = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or []]
        if found != sorted(found):
            raise Violation("stable-reads", f"{self.place}: aborted transactions of {key} out of order: {found}")
        return deque(found)


def is_hidden(header: BatchHeader, batch: bytes, aborted: deque[tuple[int, int]], active: set[int]) -> bool:
    """Whether it is a marker, or of a transaction that was aborted. `aborted` has first offset and producer id of those
    that come; `active` are producers that have one here, as far as the batches before tell."""
    while aborted and aborted[0][0] <= header.last_offset:
        active.add(aborted.popleft()[1])
    if not header.is_control:
        return header.is_transactional and header.producer_id in active
    marker = read_marker(batch)
    if marker is not None and not marker.committed:
        active.discard(header.producer_id)
    return True
