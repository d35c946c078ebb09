"""How many producers the partitions of a node remember, all together.

A producer that is not known to a partition is admitted while there is room. When there is none, producers that have
been silent for so long that no client still repeats a batch of theirs are forgotten, in whatever partition. Where all
are at work the newcomer is refused: if one of them were forgotten, a batch that it sends again would be stored twice.
A producer that the partition knows is never refused. The count is an estimate that is made exact now and then; a
follower remembers whatever its leader admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from skidway.errors import ThrottlingQuotaExceeded
from skidway.log.log import Log

IDLE_MS = 900_000
"""A producer that was silent for so long may be forgotten when there are too many: clients give up after two minutes,
unless they are told otherwise (`delivery.timeout.ms`)."""
LOOKED_THROUGH_MAX = 5_000
"""So many are looked at for each newcomer."""


class Logged(Protocol):
    """A partition."""

    log: Log


class ProducerBudget:
    def __init__(self, count_max: int, partitions: Iterable[Logged]) -> None:
        self.count_max = count_max
        self.count = 0
        self._partitions = partitions
        self._hand: Iterator[Logged] = iter(())

    def admit(self, producer_id: int, wall_ms: int) -> None:
        """One more is about to be remembered. ThrottlingQuotaExceeded: there is no room for it now."""
        if self.count >= self.count_max:
            self._make_room(wall_ms - IDLE_MS)
        if self.count >= self.count_max:
            raise ThrottlingQuotaExceeded(
                f"producer {producer_id} is new, and {self.count} producers are active in partitions of this broker: "
                f"limits.producers_max is {self.count_max}"
            )
        self.count += 1

    def recount(self) -> None:
        self.count = sum(len(partition.log.producers) for partition in self._partitions)

    def _make_room(self, since_ms: int) -> None:
        looked = 0
        while looked < LOOKED_THROUGH_MAX:
            partition = next(self._hand, None)
            if partition is None:
                self.recount()
                self._hand = iter(list(self._partitions))
                if looked or self.count < self.count_max:
                    return
                looked += 1
                continue
            looked += 1 + len(partition.log.producers)
            self.count -= len(partition.log.producers.forget_silent(since_ms))
            if self.count < self.count_max:
                return
