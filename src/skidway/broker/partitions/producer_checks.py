"""What a partition's leader asks of a producer's batch before it is appended."""

from __future__ import annotations

from skidway.broker.partitions.producer_budget import ProducerBudget
from skidway.broker.partitions.refusals import Refusals
from skidway.errors import OutOfOrderSequence
from skidway.log.log import Log
from skidway.records.batch import BatchHeader


class ProducerChecks:
    __slots__ = ("_budget", "_log", "_refusals")

    def __init__(self, log: Log, refusals: Refusals, budget: ProducerBudget) -> None:
        """All partitions share the budget."""
        self._log = log
        self._refusals = refusals
        self._budget = budget

    def check(self, header: BatchHeader, wall_ms: int) -> int | None:
        """Where the batch is already, if it is. One that comes behind a refused one is refused like it."""
        producers = self._log.producers
        try:
            # Of a producer that is not known any batch may be the first.
            original = producers.check(header)
        except OutOfOrderSequence:
            if (refusal := self._refusals.behind(header, wall_ms)) is None:
                raise
            raise refusal from None
        if original is None and not producers.knows(header.producer_id):
            refusal = self._refusals.behind(header, wall_ms) if self._refusals else None
            if refusal is not None:
                raise refusal
            self._budget.admit(header.producer_id, wall_ms)
        return original
