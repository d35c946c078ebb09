"""Batches that would begin a transaction in a partition, while its leader asks the transaction's coordinator.

A guard stands for the questions that are under way about one producer and epoch. The answer counts only while the guard
stands: a marker that may have ended the transaction that was asked about removes it, so that nothing is appended to a
transaction that is over (KAFKA-14884). A marker of an older epoch ended an older transaction. So did one of the same
epoch where every end has an epoch of its own: it carries the one of the transaction that comes next.

What a batch says of itself is not proven while it waits, so guards of different epochs do not concern each other.
Guards are the leader's memory alone, and go with its leadership. They are few: a connection has one request that waits
for answers, of one producer and epoch, and a guard goes with the last batch that waits.
"""

from skidway.broker.partitions.refusals import is_behind
from skidway.errors import NotEnoughReplicas, NotLeaderOrFollower, OutOfOrderSequence, TransactionAbortable
from skidway.records.batch import BatchHeader

WAITING_MAX = 100
"""Batches of one producer and epoch in one partition. Clients have one there by each connection."""


class Guard:
    __slots__ = ("bumps", "epoch", "is_over", "producer_id", "sequences")

    def __init__(self, producer_id: int, epoch: int, bumps: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.bumps = bumps
        """Whether the producer's epoch grows at every end of a transaction."""
        self.is_over = False
        """Whether a marker removed it."""
        self.sequences: list[int] = []
        """Of the batches that wait."""

    def check_order(self, sequence: int) -> None:
        for waiting in self.sequences:
            if is_behind(sequence, waiting):
                raise OutOfOrderSequence(f"producer {self.producer_id} sent sequence {sequence} while {waiting} waits")


class Guards:
    __slots__ = ("_standing",)

    def __init__(self) -> None:
        self._standing: dict[int, dict[int, Guard]] = {}
        """By producer and epoch."""

    def __len__(self) -> int:
        return sum(map(len, self._standing.values()))

    def stand(self, header: BatchHeader, bumps: bool) -> Guard:
        """A batch waits from now on, until `leave`."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        guard = self._standing.get(producer_id, {}).get(epoch) or Guard(producer_id, epoch, bumps)
        guard.check_order(header.base_sequence)
        if len(guard.sequences) >= WAITING_MAX:
            raise NotEnoughReplicas(f"{WAITING_MAX} batches of producer {producer_id} wait for its coordinator: retry")
        # Epochs grow only with requests that say so. Where some do not, more markers remove it: that is safe.
        guard.bumps = guard.bumps and bumps
        guard.sequences.append(header.base_sequence)
        self._standing.setdefault(producer_id, {})[epoch] = guard
        return guard

    def leave(self, guard: Guard, sequence: int) -> None:
        """The batch does not wait any more."""
        guard.sequences.remove(sequence)
        if not guard.sequences and self._stands(guard):
            self._remove(guard)

    def check(self, guard: Guard, header: BatchHeader) -> None:
        """The coordinator agrees: whether the batch may be appended now."""
        if guard.is_over:
            raise TransactionAbortable("the transaction may have ended while its coordinator was asked")
        if not self._stands(guard):
            raise NotLeaderOrFollower("the leader epoch changed while the transaction's coordinator was asked")
        guard.check_order(header.base_sequence)

    def on_marker(self, producer_id: int, epoch: int) -> None:
        """A transaction of the producer has ended."""
        if producer_id not in self._standing:
            return
        for guard in list(self._standing[producer_id].values()):
            if guard.epoch < epoch or (guard.epoch == epoch and not guard.bumps):
                guard.is_over = True
                self._remove(guard)

    def clear(self) -> None:
        self._standing.clear()

    def _stands(self, guard: Guard) -> bool:
        return self._standing.get(guard.producer_id, {}).get(guard.epoch) is guard

    def _remove(self, guard: Guard) -> None:
        of_producer = self._standing[guard.producer_id]
        del of_producer[guard.epoch]
        if not of_producer:
            del self._standing[guard.producer_id]
