"""Producers of both generations on three nodes: a reader with read_committed sees what was committed, and that alone.

Partitions and coordinators are spread over the nodes, so questions and markers travel. Nodes are killed in between.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from broker_world import batch, code, part
from nodes_together import Cluster, create, made
from transactions_world import topics_of

from skidway.errors import UnknownTopicOrPartition
from skidway.groups.placement import partition_of
from skidway.records.batch import iter_headers
from skidway.records.control import ControlType, read_control_type
from skidway.records.record import read_records
from skidway.transactions.settings import TransactionSettings

STATE, STATE_PARTITIONS = "__transaction_state", 3
PARTITIONS = 3
AGAIN = {3, 5, 6, 7, 13, 14, 15, 16, 19, 51}
"""Errors after which every client tries again."""


class Story:
    def __init__(self, flush: str) -> None:
        settings = TransactionSettings(state_partitions=STATE_PARTITIONS)
        self.cluster: Cluster = made(transactions=settings)
        create(self.cluster, "t", PARTITIONS, flush=flush)
        self.ask(1, "FindCoordinator", version=4, key_type=1, coordinator_keys=["any"])
        self.cluster.until(lambda: all(STATE in node.image.topics for node in self.cluster.nodes.values()))
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def leader(self, topic: str, index: int) -> int:
        def known() -> int | None:
            try:
                return self.cluster.leader(topic, index)
            except (KeyError, UnknownTopicOrPartition):
                return None  # some node has just been started

        return int(self.cluster.until(known))

    def ask(self, number: int, name: str, **fields: Any) -> Any:
        client = self.cluster.client(number)
        client.send(name, **fields)
        ((_, reply),) = self.cluster.until(client.replies)
        return reply

    def asked(self, leader: Callable[[], int], code_of: Callable[[Any], int], name: str, **fields: Any) -> Any:
        """What a client hears that tries again as long as it may."""
        replies: list[Any] = []

        def answered() -> bool:
            number = leader()
            client = self.cluster.client(number)
            client.send(name, **fields)
            self.cluster.until(lambda: client.connection.outbox or number not in self.cluster.nodes)
            replies.extend(reply for _, reply in client.replies())
            return bool(replies) and code_of(replies[-1]) not in AGAIN

        self.cluster.until(answered)
        return replies[-1]

    def read(self, index: int) -> list[bytes]:
        """What a client makes of everything that it gets with read_committed."""
        client = self.cluster.client(self.leader("t", index))
        client.fetch({("t", index): 0}, isolation_level=1)
        ((_, reply),) = self.cluster.until(client.replies)
        (found,) = reply.responses[0].partitions
        assert found.error_code == 0
        aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions]
        return visible(bytes(found.records), aborted)

    def check(self) -> None:
        self.cluster.until(self.cluster.ready)
        for index in range(PARTITIONS):
            self.leader("t", index)
        self.cluster.until(self.all_stable)
        assert [self.read(index) for index in range(PARTITIONS)] == self.committed
        for index in range(PARTITIONS):
            self.cluster.until(partial(self.cluster.agree, "t", index))

    def all_stable(self) -> bool:
        logs = [
            copy.log for index in range(PARTITIONS) for copy in self.cluster.copies("t", index).values() if copy.leads
        ]
        return len(logs) == PARTITIONS and all(log.last_stable_offset == log.end_offset for log in logs)


def visible(data: bytes, aborted: list[tuple[int, int]]) -> list[bytes]:
    seen: list[bytes] = []
    dropped: set[int] = set()
    for position, header in iter_headers(data):
        while aborted and aborted[0][0] <= header.base_offset:
            dropped.add(aborted.pop(0)[1])
        records = list(read_records(data[position : position + header.size], decompressed_bytes_max=100_000))
        if header.is_control:
            if read_control_type(records[0].key) == ControlType.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            seen += [bytes(record.value or b"") for record in records]
    return seen


class Producer:
    def __init__(self, story: Story, key: str, *, bumps: bool) -> None:
        self.story = story
        self.key = key
        self.bumps = bumps
        reply = self.ask("InitProducerId", lambda reply: int(reply.error_code), 4, transaction_timeout_ms=60_000)
        assert reply.error_code == 0
        self.id, self.epoch = reply.producer_id, reply.producer_epoch
        self.sequences: dict[int, int] = {}
        self.written: list[tuple[int, bytes]] = []

    def ask(self, name: str, code_of: Callable[[Any], int], version: int, **fields: Any) -> Any:
        partition = partition_of(self.key, STATE_PARTITIONS)
        if "v3_and_below_topics" not in fields:
            fields["transactional_id"] = self.key
        return self.story.asked(lambda: self.story.leader(STATE, partition), code_of, name, version=version, **fields)

    def write(self, index: int, *values: bytes) -> None:
        if not self.bumps:
            self.add(index)
        sequence = self.sequences.get(index, 0)
        producer = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": sequence}
        entry = part("Produce", "PartitionProduceData", index, batch(*values, transactional=True, **producer))
        fields = {
            "version": 12 if self.bumps else 9,
            "transactional_id": self.key,
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [part("Produce", "TopicProduceData", "t", partition_data=[entry])],
        }
        reply = self.story.asked(lambda: self.story.leader("t", index), code, "Produce", **fields)
        assert code(reply) == 0, (self.key, code(reply))
        self.sequences[index] = sequence + len(values)
        self.written += [(index, value) for value in values]

    def add(self, index: int) -> None:
        fields = {
            "v3_and_below_transactional_id": self.key,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": topics_of("AddPartitionsToTxn", "AddPartitionsToTxnTopic", (("t", index),)),
        }
        reply = self.ask("AddPartitionsToTxn", added, 3, **fields)
        assert added(reply) == 0

    def end(self, *, commit: bool) -> None:
        version = 5 if self.bumps else 3
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, "committed": commit}
        reply = self.ask("EndTxn", lambda reply: int(reply.error_code), version, **fields)
        assert reply.error_code == 0
        if self.bumps:
            self.id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}
        for index, value in self.written:
            if commit:
                self.story.committed[index].append(value)
        self.written = []


def added(reply: Any) -> int:
    return int(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def producers(story: Story) -> list[Producer]:
    """Of each generation, with different coordinators."""
    keys = {partition_of(key, STATE_PARTITIONS): key for key in ("a", "b", "c", "d", "e", "f")}
    return [Producer(story, keys[number], bumps=number == 1) for number in range(2)]


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_what_was_committed_is_read_and_nothing_else(flush: str) -> None:
    story = Story(flush=flush)
    for number, producer in enumerate(producers(story)):
        for commit in (True, False, True, False, False, True):
            for index in range(PARTITIONS):
                producer.write(index, b"%d of %d" % (index, number), b"and another")
            producer.end(commit=commit)
    story.check()
    assert [len(values) for values in story.committed] == [12, 12, 12]


def test_transactions_side_by_side() -> None:
    story = Story(flush="os")
    one, other = producers(story)
    one.write(0, b"one")
    other.write(0, b"other")
    other.write(1, b"other")
    other.end(commit=True)
    assert story.read(0) == [], "the first is open"
    one.write(0, b"one again")
    one.end(commit=False)
    story.check()
    assert story.committed == [[b"other"], [b"other"], []]


VICTIMS: dict[str, Callable[[Story, Producer], list[int]]] = {
    "leader": lambda story, producer: [story.leader("t", 0)],
    "coordinator": lambda story, producer: [story.leader(STATE, partition_of(producer.key, STATE_PARTITIONS))],
    "all": lambda story, producer: list(story.cluster.nodes),
}


@pytest.mark.parametrize("power_lost", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_kills_in_the_middle_of_transactions(victim: str, power_lost: bool) -> None:
    story = Story(flush="sync")
    for number, producer in enumerate(producers(story)):
        for commit in (True, False):
            for index in range(PARTITIONS):
                producer.write(index, b"before %d" % number)
            killed = VICTIMS[victim](story, producer)
            for node in killed:
                story.cluster.kill(node, power_lost=power_lost)
            for node in killed:
                story.cluster.restart(node)
            for index in range(PARTITIONS):
                producer.write(index, b"after %d" % number)
            producer.end(commit=commit)
            for node in (killed := VICTIMS[victim](story, producer)):
                story.cluster.kill(node, power_lost=power_lost)
            for node in killed:
                story.cluster.restart(node)
    story.check()
    assert [len(values) for values in story.committed] == [4, 4, 4]
