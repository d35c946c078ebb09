"""One transactional id: its producer, and the transaction under way or the last one.

    Empty ──────► Ongoing ──────► Ending ──────► Ended
      ▲  add partitions │   end, time-out,  │ every partition │
      │                 │   newcomer        │ has its marker  │
      └── init ◄────────┴───────────────────┴── init, or add: Ongoing again

Kafka's names: Ending is PrepareCommit or PrepareAbort, Ended is CompleteCommit or CompleteAbort. An epoch is 16 bits:
the last one that a client gets is LAST_EPOCH, and the one after it appears only in markers. Then the id gets another
producer id: at once if a producer asks for one, else when the transaction has ended (`next_producer_id`).
"""

from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

LAST_EPOCH = 32_766
MARKERS_LAST_EPOCH = LAST_EPOCH + 1
NO_PRODUCER = -1
NO_EPOCH = -1
NEVER_STARTED_MS = -1

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
NOWHERE: frozenset[Place] = frozenset()


class Empty(msgspec.Struct, frozen=True):
    """A producer has the id; no transaction since."""

    places: ClassVar[frozenset[Place]] = NOWHERE
    started_ms: ClassVar[int] = NEVER_STARTED_MS


class Ongoing(msgspec.Struct, frozen=True):
    started_ms: int
    places: frozenset[Place]
    """None of them only where Kafka wrote the record."""


class Ending(msgspec.Struct, frozen=True):
    """It is decided how it ends; markers are on their way to its partitions."""

    commit: bool
    started_ms: int
    places: frozenset[Place]


class Ended(msgspec.Struct, frozen=True):
    commit: bool
    started_ms: int = NEVER_STARTED_MS
    places: ClassVar[frozenset[Place]] = NOWHERE


State: TypeAlias = Empty | Ongoing | Ending | Ended


class Transaction(msgspec.Struct, frozen=True):
    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER
    """Of the record before, as Kafka has it: another one than today's only right after a change."""
    next_producer_id: int = NO_PRODUCER
    """Takes over when the transaction has ended: the epochs of this one are used up."""
    bumps: bool = False
    """Whether the epoch grew at the last end, or is to grow at the next (Kafka's transaction version 2)."""

    @property
    def is_last_epoch(self) -> bool:
        return self.epoch >= LAST_EPOCH

    @property
    def successor(self) -> tuple[int, int]:
        """Producer id and epoch of the next transaction, once this one is ending or has ended."""
        if self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    @property
    def places(self) -> frozenset[Place]:
        return self.state.places

    @property
    def started_ms(self) -> int:
        return self.state.started_ms

    def taken(self, producer_id: int, timeout_ms: int, wall_ms: int) -> "Transaction":
        """By a producer that asked for it, in an epoch that nobody has had."""
        assert not isinstance(self.state, Ongoing | Ending), "what is open has to end first"
        return replace(
            self,
            producer_id=producer_id,
            epoch=self.epoch + 1 if producer_id == self.producer_id else 0,
            timeout_ms=timeout_ms,
            state=Empty(),
            updated_ms=wall_ms,
            previous_producer_id=self.producer_id,
        )

    def taken_again(self, timeout_ms: int, wall_ms: int) -> "Transaction":
        """By the producer that has it. The previous producer id stays: this answer may be lost as well."""
        assert not isinstance(self.state, Ongoing | Ending), "what is open has to end first"
        return replace(self, timeout_ms=timeout_ms, state=Empty(), updated_ms=wall_ms)

    def with_places(self, places: frozenset[Place], bumps: bool, wall_ms: int) -> "Transaction":
        state = self.state
        assert not isinstance(state, Ending), "a transaction that ends takes no more partitions"
        if isinstance(state, Ongoing):
            ongoing = Ongoing(state.started_ms, state.places | places)
        else:
            ongoing = Ongoing(wall_ms, places)
        return replace(self, state=ongoing, bumps=bumps, updated_ms=wall_ms, previous_producer_id=self.producer_id)

    def fenced(self) -> "Transaction":
        """The same in the next epoch: whatever the producer still sends is refused."""
        return replace(self, epoch=min(self.epoch + 1, MARKERS_LAST_EPOCH))

    def ending(self, *, commit: bool, bumps: bool, next_producer_id: int, wall_ms: int) -> "Transaction":
        """With `bumps` in the next epoch: whatever the producer still sends in the old one is refused."""
        assert not isinstance(self.state, Ending), "how it ends is decided once"
        started_ms = self.state.started_ms if isinstance(self.state, Ongoing) else wall_ms
        return replace(
            self,
            epoch=min(self.epoch + 1, MARKERS_LAST_EPOCH) if bumps else self.epoch,
            state=Ending(commit, started_ms, self.state.places),
            updated_ms=wall_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            bumps=bumps,
        )

    def ended(self, wall_ms: int) -> "Transaction":
        state = self.state
        assert isinstance(state, Ending), "only what is ending can end"
        producer_id, epoch = self.successor
        return replace(
            self,
            producer_id=producer_id,
            epoch=epoch,
            state=Ended(state.commit, state.started_ms),
            updated_ms=wall_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER,
        )
