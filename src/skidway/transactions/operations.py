"""What a transaction coordinator can be asked, what it answers, and what it has done elsewhere.

A refusal of the whole operation is a ProtocolError in place of the reply. Which code an old client sees instead of
ProducerFenced is up to the handlers, and so is an id without a character.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from skidway.errors import ErrorCode
from skidway.runtime.replicated import Operation
from skidway.transactions.transaction import NO_EPOCH, NO_PRODUCER, Place


class Producer(Struct, frozen=True):
    """Under which number and in which epoch to write from now on."""

    id: int
    epoch: int


class InitProducer(Operation[Producer]):
    """A producer takes its transactional id, or takes it again. What another one left open under it is aborted first:
    until that is done the answer is ConcurrentTransactions."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER
    """With `epoch`: what the producer has had so far (KIP-360)."""
    epoch: int = NO_EPOCH


class AddPartitions(Operation[None]):
    """Answered when it is known for good that the partitions are in the transaction. `bumps`: see Transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    places: list[Place]
    bumps: bool = False


class VerifyPartitions(Operation[list[ErrorCode]]):
    """A partition's leader asks whether a producer may write there: one code for each place."""

    transactional_id: str
    producer_id: int
    epoch: int
    places: list[Place]


class EndTransaction(Operation[Producer]):
    """`bumps`: the client knows that its epoch grows at every end, and takes the new one from the answer."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    bumps: bool = False


class Participant(Struct):
    """One transaction among those that are committed together: under which id, and which producer it has now."""

    transactional_id: str
    producer_id: int
    epoch: int


class CommitTogether(Operation[list[Producer]]):
    """All of them or none: Skidway's own, for jobs whose tasks each write a transaction. Every one has to be open in
    just that epoch. Who asks again because no answer came gets it again. All epochs grow, and the answer has the new
    ones, in the same order."""

    participants: list[Participant]


class MarkersWritten(Operation[None]):
    """Partitions have the marker that an effect asked for, or are gone for good."""

    transactional_id: str
    number: int
    """Of the effect. Two transactions may have the same producer id and epoch: an answer about the last one must not
    complete this one."""
    places: list[Place]


class TopicsDeleted(Operation[None]):
    """Their partitions need no markers any more."""

    topics: list[str]


class Tick(Operation[None]):
    age_wall_ms: int
    """The wall clock for what is forgotten by age."""


class Description(Struct):
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    places: list[Place] = field(default_factory=list)
    """Those that have no marker yet."""


class DescribeTransaction(Operation[Description]):
    transactional_id: str


class ListIds(Operation[list[str]]):
    """All there are: to look at some of them at a time."""


class ListTransactions(Operation[list[Description]]):
    """All that every filter lets pass; `places` stay empty. As in Kafka, the time counts from the start of the last
    transaction, whether it has ended or not, and an id that has had none passes."""

    ids: Sequence[str] | None = None
    """Only these, as far as there are such; None: all."""
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None


class WriteMarkers(Struct, frozen=True):
    """An effect: every partition gets a marker, however often that has to be tried. Without partitions (only where
    Kafka wrote the record) MarkersWritten follows, too."""

    transactional_id: str
    number: int
    producer_id: int
    epoch: int
    commit: bool
    bumps: bool
    places: frozenset[Place]
