"""Batches that a partition did not take although they will be sent again: which producers wait with which.

A producer has several batches under way. When one is refused for want of room or of replicas, or because this node does
not lead yet, those behind it must not be called out of order: librdkafka takes that for a loss, begins a new producer
epoch, and sends again what other partitions have but have not acknowledged yet. They are refused like the first, until
that is taken, or was not sent again for so long that nobody waits for it.
"""

import msgspec

from skidway.errors import (
    ConcurrentTransactions,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageError,
    ThrottlingQuotaExceeded,
)
from skidway.ports import Buffer
from skidway.records.batch import HEADER_BYTES, BatchHeader, crc_matches, read_header

Refusal = StorageError | NotEnoughReplicas | NotLeaderOrFollower | ThrottlingQuotaExceeded | ConcurrentTransactions
PRODUCERS_MAX = 1_000
"""Those that were refused first are forgotten for others: then they are told that they are out of order."""
KEPT_MS = 30_000
SEQUENCES = 1 << 31


class _First(msgspec.Struct):
    """The refused batch that comes first."""

    epoch: int
    sequence: int
    why: type[Refusal]
    text: str
    refused_ms: int


class Refusals:
    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: dict[int, _First] = {}
        """By producer."""

    def __bool__(self) -> bool:
        return bool(self.first)

    def note(self, records: Buffer, why: Refusal, wall_ms: int) -> None:
        """A batch was not taken. Nobody may have looked at it yet: what is no batch speaks for no producer."""
        if len(records) < HEADER_BYTES:
            return
        header = read_header(records)
        if header.producer_id < 0 or header.size != len(records) or not crc_matches(records):
            return
        first = self.first
        known = self._waiting(header, wall_ms)
        if known is not None and is_behind(header.base_sequence, known.sequence):
            return
        while len(first) >= PRODUCERS_MAX and header.producer_id not in first:
            del first[next(iter(first))]
        first[header.producer_id] = _First(header.producer_epoch, header.base_sequence, type(why), str(why), wall_ms)

    def behind(self, header: BatchHeader, wall_ms: int) -> Refusal | None:
        """The same refusal again, if the batch comes behind one that has to be sent again."""
        first = self._waiting(header, wall_ms)
        if first is None or not is_behind(header.base_sequence, first.sequence):
            return None
        return first.why(first.text)

    def taken(self, header: BatchHeader) -> None:
        """This batch is in the log. Those that were refused come behind it, or none is waited for any more."""
        first = self.first.get(header.producer_id)
        if first is not None and not is_behind(first.sequence, header.base_sequence):
            del self.first[header.producer_id]

    def clear(self) -> None:
        self.first.clear()

    def _waiting(self, header: BatchHeader, wall_ms: int) -> _First | None:
        first = self.first.get(header.producer_id)
        if first is None or first.epoch != header.producer_epoch:
            return None
        return first if 0 <= wall_ms - first.refused_ms <= KEPT_MS else None


def is_behind(sequence: int, other: int) -> bool:
    """Sequences begin again at 0 when there are no more."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
