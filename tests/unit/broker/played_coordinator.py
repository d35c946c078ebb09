"""A node whose transaction coordinators are played by the test: it sees the questions and gives the answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker_world import Peer, World, batch, marker_of, part

from skidway.errors import ErrorCode
from skidway.records.control import EndTransaction

STEADY, BUMPING = 11, 12
"""Versions of Produce of the two generations of clients."""
PRODUCER = 7
ID = "shop"
AGREED = ErrorCode.NONE


@dataclass
class Asked:
    transactional_id: str
    producer_id: int
    epoch: int
    places: list[tuple[str, int]]
    add: bool
    respond: Callable[[list[ErrorCode]], None]

    def answer(self, *codes: ErrorCode) -> None:
        """One code for all places, or one for each."""
        self.respond(list(codes) * len(self.places) if len(codes) == 1 else list(codes))


class PlayedQuestions:
    def __init__(self) -> None:
        self.open: list[Asked] = []
        self.asked = 0

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: list[tuple[str, int]],
        add: bool,
        now_ms: int,
        respond: Callable[[list[ErrorCode]], None],
    ) -> None:
        self.asked += 1
        self.open.append(Asked(transactional_id, producer_id, producer_epoch, places, add, respond))


class TransactionalWorld(World):
    def __init__(self, partitions: int = 2, **settings: Any) -> None:
        super().__init__(**settings)
        self.questions = PlayedQuestions()
        self.node.rooms.services.questions = self.questions  # type: ignore[assignment]
        self.producer = ProducerPeer(self)
        self.producer.create("orders", partitions, flush="os")

    def answer(self, *codes: ErrorCode) -> None:
        """The coordinator answers the oldest question."""
        self.questions.open.pop(0).answer(*codes)
        self.settle()

    def marker(self, epoch: int, *, index: int = 0, version: int = 0, commit: bool = True, by: int = 3) -> None:
        partition = self.partition("orders", index)
        partition.write_marker(marker_of(PRODUCER, epoch, EndTransaction(commit, by), version, self.clock.wall_ms()))
        self.settle()

    def stored(self, index: int = 0) -> int:
        return int(self.partition("orders", index).log.end_offset)

    def guards(self, index: int = 0) -> int:
        return len(self.partition("orders", index).checks.guards)


class ProducerPeer(Peer):
    """A connection of a transactional producer."""

    def write(
        self,
        sequence: int,
        epoch: int = 0,
        *,
        index: int = 0,
        version: int = STEADY,
        producer_id: int = PRODUCER,
        value: bytes = b"x",
        transactional_id: str | None = ID,
        **fields: Any,
    ) -> int:
        """Send one batch of one record."""
        data = self.data(sequence, epoch, producer_id=producer_id, value=value)
        return self.write_all([(index, data)], version=version, transactional_id=transactional_id, **fields)

    def data(
        self,
        sequence: int,
        epoch: int = 0,
        *,
        producer_id: int = PRODUCER,
        transactional: bool = True,
        value: bytes = b"x",
        **options: Any,
    ) -> bytes:
        return batch(
            value,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            **options,
        )

    def write_all(
        self,
        batches: list[tuple[int, bytes]],
        *,
        version: int = STEADY,
        transactional_id: str | None = ID,
        acks: int = -1,
    ) -> int:
        entries = [part("Produce", "PartitionProduceData", index, data) for index, data in batches]
        topics = [part("Produce", "TopicProduceData", "orders", partition_data=entries)]
        fields = {"acks": acks, "timeout_ms": 5000, "topic_data": topics, "transactional_id": transactional_id}
        sent = self.send("Produce", version=version, **fields)
        self.world.settle()
        return sent

    def codes(self) -> list[list[int]]:
        """The error codes of the replies that are there, partition by partition."""
        return [
            [int(entry.error_code) for entry in response.responses[0].partition_responses]
            for _, response in self.replies()
        ]
