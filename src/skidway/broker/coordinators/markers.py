"""Markers of ended transactions, written to partitions that this node leads.

A marker is answered when it is committed. Where a machine lives in the partition (`through`), it has applied it by
then: whoever reads next sees what the transaction did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Partition
from skidway.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    NotCoordinator,
    ProtocolError,
)
from skidway.ports import Clock
from skidway.records.control import EndTransaction
from skidway.runtime.parking import OffsetParking

WAIT_MS = 3_000
"""So long a marker may wait to be committed; whoever sent it sends another one then, which does no harm."""


@dataclass(slots=True, frozen=True)
class Marker:
    producer_id: int
    producer_epoch: int
    end: EndTransaction
    transaction_version: int
    """0 where nobody said: then it may also end what a producer of the same epoch has open."""


Respond = Callable[[ErrorCode], None]
WriteThrough = Callable[[Partition, Marker, int, Callable[[ProtocolError | None], None]], None]
"""(partition, marker, now_ms, respond): answered when the partition's machine has applied the committed marker."""


class MarkerWriter:
    __slots__ = ("_acknowledgements", "_clock", "_partitions", "through")

    def __init__(self, partitions: Partitions, acknowledgements: OffsetParking[Partition], clock: Clock) -> None:
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._clock = clock
        self.through: dict[str, WriteThrough] = {}
        """By topic: who writes markers to partitions that have a machine."""

    def write(self, topic: str, index: int, marker: Marker, now_ms: int, respond: Respond) -> None:
        try:
            partition = self._partitions.find(topic, index)
            if (through := self.through.get(topic)) is not None:
                through(partition, marker, now_ms, lambda failed: respond(_code_of(failed)))
                return
            end_offset = partition.write_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.end,
                marker.transaction_version,
                self._clock.wall_ms(),
            )
        except ProtocolError as error:
            respond(_code_of(error))
            return
        self._when_committed(partition, end_offset, now_ms, respond)

    def _when_committed(self, partition: Partition, end_offset: int, now_ms: int, respond: Respond) -> None:
        if partition.log.high_watermark >= end_offset:
            respond(ErrorCode.NONE)
            return

        def answer(failed: Mapping[Partition, ProtocolError]) -> None:
            respond(_code_of(failed.get(partition)))

        self._acknowledgements.park({partition: end_offset}, now_ms + WAIT_MS, answer)


def _code_of(error: ProtocolError | None) -> ErrorCode:
    """As the coordinator of the transaction hears it, which knows leaders and not other coordinators."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code
