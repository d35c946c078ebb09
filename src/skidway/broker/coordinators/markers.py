"""Markers of ended transactions, written to partitions that this node leads.

A marker is answered when it is committed. Where a machine lives in the partition (`through`), it has applied it by
then: whoever reads next sees what the transaction did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat

from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.marker_batches import MarkerBatches
from skidway.broker.partitions.partition import Partition
from skidway.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    InvalidRequest,
    NotCoordinator,
    ProtocolError,
)
from skidway.ports import Clock
from skidway.runtime.log_store import Marker
from skidway.runtime.parking import OffsetParking
from skidway.transactions.transaction import Place

WAIT_MS = 3_000
"""So long a marker may wait to be committed. Whoever sent it sends another one then; a transaction that is ending may
have two."""


Respond = Callable[[Sequence[Place], ErrorCode], None]
"""Called as often as it takes until each place has its code."""
WriteThrough = Callable[[Partition, Marker, int, Callable[[ProtocolError | None], None]], None]
"""(partition, marker, now_ms, respond): answered when the partition's machine has applied the committed marker."""


class MarkerWriter:
    __slots__ = ("_acknowledgements", "_clock", "_latest", "_partitions", "through")

    def __init__(self, partitions: Partitions, acknowledgements: OffsetParking[Partition], clock: Clock) -> None:
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._clock = clock
        self._latest: dict[int, tuple[int, int]] = {}
        """By node: broker epoch and number of the last request with markers."""
        self.through: dict[str, WriteThrough] = {}
        """By topic: who writes markers to partitions that have a machine."""

    def is_late(self, sender_id: int, sender_epoch: int, number: int) -> bool:
        """Whether a later request of the same node came before this one: that node has given up this one and sent its
        markers again. What they ended may be over, and a producer may have begun another transaction in the same epoch,
        which they would end."""
        if self._latest.get(sender_id, (-1, -1)) >= (sender_epoch, number):
            return True
        self._latest[sender_id] = (sender_epoch, number)
        return False

    def write(
        self,
        places: Sequence[Place],
        marker: Marker,
        now_ms: int,
        respond: Respond,
        leader_epochs: Sequence[int] = (),
    ) -> None:
        """One marker to many partitions, in one go; few enough for one. `leader_epochs`: those for which it is meant,
        if its sender says so. A marker for an earlier one is late, like one that another has overtaken: its sender has
        asked another leader meanwhile."""
        batches = MarkerBatches(marker, self._clock.wall_ms())
        committed: list[Place] = []
        waiting: dict[Partition, int] = {}
        for place, leader_epoch in zip(places, leader_epochs or repeat(-1), strict=False):
            try:
                partition = self._partition_of(place, marker, leader_epoch)
                if (through := self.through.get(place[0])) is not None:
                    through(partition, marker, now_ms, partial(_answer, respond, place))
                    continue
                end_offset = partition.write_marker(batches)
            except ProtocolError as error:
                respond([place], _code_of(error))
                continue
            if partition.log.high_watermark >= end_offset:
                committed.append(place)
            else:
                waiting[partition] = end_offset
        if committed:
            respond(committed, ErrorCode.NONE)
        if waiting:
            self._acknowledgements.park(waiting, now_ms + WAIT_MS, partial(_answer_all, respond, list(waiting)))

    def _partition_of(self, place: Place, marker: Marker, leader_epoch: int) -> Partition:
        if marker.producer.id < 0 or marker.producer.epoch < 0:
            raise InvalidRequest(f"a marker of producer {marker.producer.id} in epoch {marker.producer.epoch}")
        partition = self._partitions.find(*place)
        if 0 <= leader_epoch < partition.role.leader_epoch:
            raise FencedLeaderEpoch(f"a marker for epoch {leader_epoch}, {partition} is in a later one")
        return partition


def _answer(respond: Respond, place: Place, failed: ProtocolError | None) -> None:
    respond([place], _code_of(failed))


def _answer_all(respond: Respond, waited: list[Partition], failed: Mapping[Partition, ProtocolError]) -> None:
    if committed := [(each.topic, each.index) for each in waited if each not in failed]:
        respond(committed, ErrorCode.NONE)
    for partition, error in failed.items():
        respond([(partition.topic, partition.index)], _code_of(error))


def _code_of(error: ProtocolError | None) -> ErrorCode:
    """As the coordinator of the transaction hears it, which knows leaders and not other coordinators."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code
