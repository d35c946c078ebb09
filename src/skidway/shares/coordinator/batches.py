"""Runs of offsets with one delivery state and count each: how what is written is merged into what is stored.

A list of batches is sorted, and no two of them overlap. Where a new batch overlaps a stored one, the higher count wins,
then the higher state: a write that comes late undoes nothing. Neighbours that say the same are joined. What lies below
the start offset is cut off. One batch is merged in by a search and a splice, so that a write costs what it changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from skidway.errors import InvalidRequest

DELIVERY_COUNT_MAX = 32_767


class DeliveryState(IntEnum):
    """Kafka's numbers. An acquired record is stored as it was before: a lock ends with its leader."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    first: int
    last: int
    """Inclusive, as in Kafka's records."""
    state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.delivery_count, self.state


_first, _last = attrgetter("first"), attrgetter("last")


def check(batches: Iterable[StateBatch], window_end: int) -> None:
    """Raises InvalidRequest for what no leader may write. They ascend, and end below an offset."""
    end = 0
    for batch in batches:
        if not end <= batch.first <= batch.last < window_end:
            raise InvalidRequest(
                f"a batch from offset {batch.first} to {batch.last}, behind {end - 1}: batches ascend, do not overlap,"
                f" and end below {window_end}"
            )
        end = batch.last + 1
        if batch.state not in STORED:
            raise InvalidRequest(f"delivery state {batch.state} cannot be stored")
        if not 0 <= batch.delivery_count <= DELIVERY_COUNT_MAX:
            raise InvalidRequest(f"a delivery count of {batch.delivery_count}")


STORED = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}


def merged(stored: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Both, from `start_offset` on (-1: all). Neither is changed."""
    batches = list(stored)
    for batch in written:
        _merge_one(batches, batch)
    return cut(batches, start_offset)


def cut(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    keep = bisect_left(batches, start_offset, key=_last)
    if keep:
        batches = batches[keep:]
    if batches and batches[0].first < start_offset:
        batches = [batches[0]._replace(first=start_offset), *batches[1:]]
    return batches


def _merge_one(batches: list[StateBatch], new: StateBatch) -> None:
    # Those that overlap it, and the neighbours that it may join.
    begin = bisect_left(batches, new.first - 1, key=_last)
    end = bisect_right(batches, new.last + 1, lo=begin, key=_first)
    result: list[StateBatch] = []
    position = new.first
    for old in batches[begin:end]:
        if old.first < new.first:
            _append(result, old._replace(last=min(old.last, new.first - 1)))
        if position < old.first <= new.last:
            _append(result, new._replace(first=position, last=old.first - 1))
            position = old.first
        if old.first <= position <= min(old.last, new.last):
            winner = new if new.rank > old.rank else old
            last = min(old.last, new.last)
            _append(result, winner._replace(first=position, last=last))
            position = last + 1
        if old.last > new.last:
            if position <= new.last:
                _append(result, new._replace(first=position))
                position = new.last + 1
            _append(result, old._replace(first=max(old.first, new.last + 1)))
    if position <= new.last:
        _append(result, new._replace(first=position))
    batches[begin:end] = result


def _append(batches: list[StateBatch], batch: StateBatch) -> None:
    if batches and batches[-1].last + 1 == batch.first and batches[-1].rank == batch.rank:
        batches[-1] = batches[-1]._replace(last=batch.last)
    else:
        batches.append(batch)
