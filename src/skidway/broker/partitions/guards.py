"""Batches that would begin a transaction in a partition, while its leader asks the transaction's coordinator.

A guard stands for the questions that are under way about one producer and epoch. The answer counts only while the guard
stands: a marker that may have ended the transaction that was asked about removes it, so that nothing is appended to a
transaction that is over (KAFKA-14884). A marker of an older epoch ended an older transaction. So did one of the same
epoch where every end has an epoch of its own: it carries the one of the transaction that comes next.

Guards are the leader's memory alone, and go with its leadership. They are few: a connection has one request that waits
for answers, and a guard goes with the last request that waits.
"""

from skidway.broker.partitions.refusals import is_behind
from skidway.errors import InvalidProducerEpoch, OutOfOrderSequence, TransactionAbortable
from skidway.records.batch import BatchHeader


class Guard:
    __slots__ = ("bumps", "epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, epoch: int, bumps: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.bumps = bumps
        """Whether the producer's epoch grows at every end of a transaction."""
        self.sequences: list[int] = []
        """Of the batches that wait."""


class Guards:
    __slots__ = ("_standing",)

    def __init__(self) -> None:
        self._standing: dict[int, Guard] = {}
        """By producer."""

    def __len__(self) -> int:
        return len(self._standing)

    def stand(self, header: BatchHeader, bumps: bool) -> Guard:
        """A batch waits from now on, until `leave`."""
        guard = self._standing.get(header.producer_id)
        if guard is None or guard.epoch < header.producer_epoch:
            guard = self._standing[header.producer_id] = Guard(header.producer_id, header.producer_epoch, bumps)
        elif guard.epoch > header.producer_epoch:
            raise InvalidProducerEpoch(f"producer {header.producer_id} has epoch {guard.epoch} by now")
        _check_order(guard, header)
        # Epochs grow only with requests that say so. Where some do not, more markers remove it: that is safe.
        guard.bumps = guard.bumps and bumps
        guard.sequences.append(header.base_sequence)
        return guard

    def leave(self, guard: Guard, sequence: int) -> None:
        """The batch does not wait any more."""
        guard.sequences.remove(sequence)
        if not guard.sequences and self._standing.get(guard.producer_id) is guard:
            del self._standing[guard.producer_id]

    def check(self, guard: Guard, header: BatchHeader) -> None:
        """The coordinator agrees: whether the batch may be appended now."""
        standing = self._standing.get(guard.producer_id)
        if standing is not guard:
            if standing is not None and standing.epoch > guard.epoch:
                raise InvalidProducerEpoch(f"producer {guard.producer_id} has epoch {standing.epoch} by now")
            raise TransactionAbortable("the transaction may have ended while its coordinator was asked")
        _check_order(guard, header)

    def on_marker(self, producer_id: int, epoch: int) -> None:
        """A transaction of the producer has ended."""
        guard = self._standing.get(producer_id)
        if guard is not None and (guard.epoch < epoch or (guard.epoch == epoch and not guard.bumps)):
            del self._standing[producer_id]

    def clear(self) -> None:
        self._standing.clear()


def _check_order(guard: Guard, header: BatchHeader) -> None:
    sequence = header.base_sequence
    for waiting in guard.sequences:
        if is_behind(sequence, waiting):
            raise OutOfOrderSequence(f"producer {guard.producer_id} sent sequence {sequence} while {waiting} waits")
