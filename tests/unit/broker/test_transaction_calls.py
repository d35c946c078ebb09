"""What a transaction costs its brokers: counted in calls of Python functions, which hardly depend on the machine.

One node coordinates and leads, `flush=os`, one partition: nothing waits for a disk or for another node.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from broker_world import batch, part
from transactions_world import ID, Transactions

BUMPING = 5
"""EndTxn that tells the next epoch."""


class Story:
    """A producer that has had a few transactions, so that everything is loaded."""

    def __init__(self) -> None:
        self.told = Transactions(topic_defaults={"flush": "os"})
        self.world, self.peer = self.told.world, self.told.peer
        reply = self.told.init()
        self.producer = reply.producer_id, reply.producer_epoch
        self.sequence = 0
        self.calls = 0
        for _ in range(2):
            self.write()
            self.end()

    def _note(self, running: FrameType, event: str, argument: Any) -> None:
        self.calls += event == "call"

    def counted(self, act: Callable[..., Any], *arguments: Any) -> None:
        sys.setprofile(self._note)
        try:
            act(*arguments)
        finally:
            sys.setprofile(None)

    def write(self) -> int:
        """The calls of a batch until it is answered; a client that lets leaders add its partitions."""
        producer_id, epoch = self.producer
        options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": self.sequence}
        entry = part("Produce", "PartitionProduceData", 0, batch(b"x" * 100, transactional=True, **options))
        topics = [part("Produce", "TopicProduceData", "t", partition_data=[entry])]
        fields = {"acks": -1, "timeout_ms": 5000, "topic_data": topics, "transactional_id": ID}
        calls = self._until_answered(self.peer.frame("Produce", version=12, **fields))
        assert self.peer.reply().responses[0].partition_responses[0].error_code == 0
        self.world.settle()
        self.sequence += 1
        return calls

    def end(self) -> tuple[int, int]:
        """The calls of an end until it is answered, and from there until a reader may see what it commits, with those
        of the turns of the event loop."""
        producer_id, epoch = self.producer
        fields = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
        answered = self._until_answered(self.peer.frame("EndTxn", version=BUMPING, **fields))
        reply = self.peer.reply()
        self.producer, self.sequence = (reply.producer_id, reply.producer_epoch), 0
        self.calls = 0
        self.counted(self.world.end_turn)
        log = self.world.partition("t").log
        assert log.last_stable_offset == log.end_offset, "it took more than the turn of its answer"
        assert not self.world.node.turn.moved, "whoever waits for it has been told"
        assert type(self.told.state().state).__name__ == "Ended"
        return answered, self.calls

    def _until_answered(self, frame: bytes) -> int:
        self.calls = 0
        self.counted(self.peer.give, frame)
        assert self.peer.connection.outbox, "it is answered at once"
        return self.calls


def test_the_first_batch_of_a_transaction() -> None:
    assert Story().write() <= 214


def test_a_batch_of_an_open_transaction() -> None:
    story = Story()
    story.write()
    assert story.write() <= 43


def test_the_end_of_a_transaction_is_answered_before_its_markers_are_written() -> None:
    story = Story()
    story.write()
    answered, complete = story.end()
    assert answered <= 98
    assert complete <= 158
