"""What one request writes to a topic: records by partition, in batches, sent to the leaders of their partitions.

All records of a partition travel in one batch, or in a few if they would be larger than the topic allows, one after the
other. A batch goes to the leader with acks=all, wherever it is. One that was refused because the leader has moved is
sent again within the time of the request. If a leader does not answer, nobody knows whether it appended: a batch that
may be sent twice (`once`) is sent again, any other is refused as `leader_lost`.

A record without partition goes where its key belongs, as Kafka's clients decide it. Those without a key go to one
partition together, another one with each request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import UNSET

from skidway.blocking_client.partitioners import partition_of_key
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.leaders import (
    MOVED,
    RETRY_MS,
    ask_node,
    find_topic,
    leader_of,
    no_leader,
    problem_of,
)
from skidway.gateways.http.topics.once import EPOCH, Once, reused
from skidway.gateways.http.topics.shapes import Produced, Refusal
from skidway.metadata.image import NO_LEADER
from skidway.records.record import Headers, Record, build_batch
from skidway.steps import Job, Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TIMEOUT_MS = 10_000
RECORDS_MAX = 10_000
ACKS_ALL = -1
RECORD_OVERHEAD_BYTES = 40
BATCH_OVERHEAD_BYTES = 1_024
BUILT_AT_ONCE_BYTES = 64 << 10
BUILT_AT_ONCE_RECORDS = 100
"""A worker would take longer to hear of so little than it takes to build it."""


def too_many() -> Problem:
    return Problem(413, "too_many_records", f"a request may have {RECORDS_MAX} records")


class Chunk:
    """Records that become one batch of one partition."""

    __slots__ = ("_once", "_position", "batch", "is_lost", "numbers", "partition", "records", "size")

    def __init__(self, index: int, position: int, once: Once | None) -> None:
        """`position` is its number among the batches of its partition."""
        self.partition = index
        self._position = position
        self._once = once
        self.records: list[Record] = []
        self.numbers: list[int] = []
        """Of its records, in the request."""
        self.size = BATCH_OVERHEAD_BYTES
        self.batch: bytearray | None = None
        self.is_lost = False
        """The last leader that it was sent to has not answered."""

    def build(self) -> bytearray:
        if self.batch is None:
            if (once := self._once) is None:
                self.batch = build_batch(self.records)
            else:
                producer_id = once.producer_id(self._position)
                self.batch = build_batch(
                    self.records, producer_id=producer_id, producer_epoch=EPOCH, base_sequence=once.sequence
                )
        return self.batch


class Production:
    """What one request writes, and where it was written."""

    __slots__ = (
        "_bytes_max",
        "_chunks",
        "_keyless",
        "_partitions",
        "_problem",
        "call",
        "deadline_ms",
        "offsets",
        "once",
        "topic",
        "wall_ms",
    )

    def __init__(self, call: HttpCall, topic: str, once: Once | None = None) -> None:
        node = call.site.node
        self.call = call
        self.topic = topic
        self.once = once
        self.deadline_ms = call.now_ms + TIMEOUT_MS
        self.wall_ms = node.clock.wall_ms()
        self._partitions = len(find_topic(call, topic).partitions)
        self._bytes_max = node.rooms.hosting.topic_settings.of(topic).max_message_bytes
        self._chunks: dict[int, list[Chunk]] = {}
        self.offsets: list[Produced] = []
        """Of each record, or why it has none."""
        self._problem: Problem | None = None
        """The last."""
        self._keyless = call.site.next_number() % self._partitions if once is None else once.place(self._partitions)
        """Where records without a key go."""

    @property
    def rounds(self) -> int:
        """How many batches the partition with the most has."""
        return max((len(chunks) for chunks in self._chunks.values()), default=0)

    def round(self, number: int) -> list[Chunk]:
        return [chunks[number] for chunks in self._chunks.values() if number < len(chunks)]

    def add(
        self, key: bytes | None, value: bytes | None, headers: Headers, index: int | None, timestamp: int | None
    ) -> None:
        """`index` is the partition, where it was chosen. Raises Problem."""
        if len(self.offsets) >= RECORDS_MAX:
            raise too_many()
        index = self._place(index, key)
        record = Record(0, self.wall_ms if timestamp is None else timestamp, key, value, headers)
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        for name, each in headers:
            size += len(name) * 4 + len(each or b"") + 10
        chunks = self._chunks.setdefault(index, [])
        if not chunks or chunks[-1].size + size > self._bytes_max:
            chunks.append(Chunk(index, len(chunks), self.once))
        chunk = chunks[-1]
        chunk.size += size
        chunk.records.append(record)
        chunk.numbers.append(len(self.offsets))
        self.offsets.append(Produced(index))

    def _place(self, chosen: int | None, key: bytes | None) -> int:
        if chosen is None:
            return self._keyless if key is None else partition_of_key(key, self._partitions)
        if chosen >= self._partitions:
            text = f"{self.topic} has {self._partitions} partitions, counted from 0, and no {chosen}"
            raise Problem(404, "no_such_partition", text)
        return chosen

    def __len__(self) -> int:
        return len(self.offsets)

    def check(self) -> None:
        """All records are here. Raises Problem."""
        if self.once is not None:
            self.once.check(self.call, find_topic(self.call, self.topic).id)

    def send_all(self) -> Steps[None]:
        for number in range(self.rounds):
            chunks = self.round(number)
            if _are_small(chunks):
                _build_all(chunks)
            else:
                yield Job(partial(_build_all, chunks))
            yield Question(partial(_send_round, self, chunks))

    def written(self, chunk: Chunk, base_offset: int) -> None:
        for offset, number in enumerate(chunk.numbers, base_offset):
            self.offsets[number].offset = offset

    def refused(self, chunk: Chunk, problem: Problem) -> None:
        self._problem = problem
        refusal = Refusal(problem.code, problem.detail, problem.retryable)
        for number in chunk.numbers:
            self.offsets[number].error = refusal

    def answer(self) -> list[Produced]:
        """Of each record. Raises Problem if nothing was written, for one reason."""
        errors = [produced.error for produced in self.offsets if produced.error is not UNSET]
        if errors and len(errors) == len(self.offsets) and all(error == errors[0] for error in errors):
            assert self._problem is not None
            raise self._problem
        return self.offsets


def _are_small(chunks: list[Chunk]) -> bool:
    return (
        sum([chunk.size for chunk in chunks]) <= BUILT_AT_ONCE_BYTES
        and sum([len(chunk.records) for chunk in chunks]) <= BUILT_AT_ONCE_RECORDS
    )


def _build_all(chunks: list[Chunk]) -> None:
    for chunk in chunks:
        chunk.build()


def _send_round(production: Production, chunks: list[Chunk], done: Callable[[Any], None]) -> None:
    Round(production, done).send(chunks)


class Round:
    """Batches of several partitions under way, one of each."""

    __slots__ = ("_again", "_done", "_production", "_under_way")

    def __init__(self, production: Production, done: Callable[[None], None]) -> None:
        self._production = production
        self._done = done
        self._under_way = 0
        self._again: list[Chunk] = []

    def send(self, chunks: list[Chunk]) -> None:
        """To their leaders, all at once."""
        production = self._production
        self._again = []
        self._under_way = 1  # ours: answers of this node come before we are through
        try:
            by_leader = self._by_leader(chunks)
        except Problem as problem:
            for chunk in chunks:
                production.refused(chunk, problem)
            by_leader = {}
        left_ms = max(1, production.deadline_ms - production.call.site.node.clock.monotonic_ms())
        for leader, led in by_leader.items():
            self._under_way += 1
            ask_node(production.call, leader, self._request(led, left_ms), left_ms, partial(self._on_answer, led))
        self._finish_one()

    def _by_leader(self, chunks: list[Chunk]) -> dict[int, list[Chunk]]:
        production = self._production
        topic = find_topic(production.call, production.topic)
        by_leader: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            leader = leader_of(production.call, topic, chunk.partition)
            if leader == NO_LEADER:
                self._again.append(chunk)
            else:
                by_leader.setdefault(leader, []).append(chunk)
        return by_leader

    def _request(self, chunks: list[Chunk], timeout_ms: int) -> ProduceRequest:
        production = self._production
        topic = find_topic(production.call, production.topic)
        # The log stamps a batch where it lies, so one that may be sent again is copied.
        data = [PartitionProduceData(chunk.partition, memoryview(bytearray(chunk.build()))) for chunk in chunks]
        return ProduceRequest(None, ACKS_ALL, timeout_ms, [TopicProduceData(production.topic, topic.id, data)])

    def _on_answer(self, chunks: list[Chunk], answer: Message | None) -> None:
        if isinstance(answer, ProduceResponse) and answer.responses:
            answers = {each.index: each for each in answer.responses[0].partition_responses}
            for chunk in chunks:
                self._take(chunk, answers[chunk.partition])
        else:
            for chunk in chunks:
                self._lose(chunk)
        self._finish_one()

    def _lose(self, chunk: Chunk) -> None:
        if self._production.once is None:
            self._production.refused(chunk, _lost())
        else:
            chunk.is_lost = True
            self._again.append(chunk)

    def _take(self, chunk: Chunk, answer: PartitionProduceResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code in MOVED:
            self._again.append(chunk)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._production.once is not None:
            self._production.refused(chunk, reused())
        elif code:
            self._production.refused(chunk, problem_of(code, answer.error_message or ""))
        else:
            self._production.written(chunk, answer.base_offset)

    def _finish_one(self) -> None:
        self._under_way -= 1
        if self._under_way:
            return
        again, node = self._again, self._production.call.site.node
        now_ms = node.clock.monotonic_ms()
        if again and now_ms + RETRY_MS < self._production.deadline_ms:
            node.timers.at(now_ms + RETRY_MS, partial(self.send, again))
            return
        for chunk in again:
            problem = _lost() if chunk.is_lost else no_leader(self._production.topic, chunk.partition)
            self._production.refused(chunk, problem)
        self._done(None)


def _lost() -> Problem:
    return Problem(503, "leader_lost", "the leader did not answer: it may have written or not", retryable=True)
