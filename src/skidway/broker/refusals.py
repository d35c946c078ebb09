"""Batches that a partition did not take although they will be sent again: which producers wait with which.

A producer has several batches under way. When one is refused for want of room or of replicas, those behind it must not
be called out of order: librdkafka takes that for a loss, begins a new producer epoch, and sends again what other
partitions have but have not acknowledged yet. They are refused like the first, until that is taken.
"""

from skidway.errors import NotEnoughReplicas, StorageError
from skidway.ports import Buffer
from skidway.records.batch import HEADER_BYTES, BatchHeader, read_header

Refusal = StorageError | NotEnoughReplicas
PRODUCERS_MAX = 1_000
"""Those that were refused first are forgotten for others: then they are told that they are out of order."""


class Refusals:
    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int, type[Refusal], str]] = {}
        """By producer: its epoch, the sequence that comes first, and why that was refused."""

    def __bool__(self) -> bool:
        return bool(self._first)

    def note(self, records: Buffer, why: Refusal) -> None:
        """A batch was not taken; nobody may have looked at it yet."""
        if len(records) < HEADER_BYTES:
            return
        header = read_header(records)
        first = self._first
        if header.producer_id < 0 or self._waiting(header) is not None:
            return
        while len(first) >= PRODUCERS_MAX:
            del first[next(iter(first))]
        first[header.producer_id] = header.producer_epoch, header.base_sequence, type(why), str(why)

    def behind(self, header: BatchHeader) -> Refusal | None:
        """The same refusal again, if the batch comes behind one that has to be sent again."""
        waiting = self._waiting(header)
        if waiting is None or waiting[1] == header.base_sequence:
            return None
        return waiting[2](waiting[3])

    def taken(self, producer_id: int) -> None:
        self._first.pop(producer_id, None)

    def clear(self) -> None:
        self._first.clear()

    def _waiting(self, header: BatchHeader) -> tuple[int, int, type[Refusal], str] | None:
        waiting = self._first.get(header.producer_id)
        return waiting if waiting is not None and waiting[0] == header.producer_epoch else None
