"""Producers as librdkafka's are: batches in order per partition, several in flight, retried until it is clear.

An idempotent producer numbers its batches and repeats them under the same numbers; a batch it gives up may be in the
log or not, so after that it begins anew under another id. A plain producer that repeats may write twice. What became
of each batch is told to the history: sent, acknowledged at an offset, refused for good, or unknown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.sim.clients.base import ROUTING_ERRORS, Client
from skidway.sim.clients.share_holds import key_of
from skidway.sim.world.events import MS, Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skidway.wire.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

RETRY_MS = 60
QUEUE_MAX = 40
BROKER_REMEMBERS = 5
"""Batches of a producer that a broker can tell for repeated: no more may follow one that may have to be repeated."""
RETRIED = ROUTING_ERRORS | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CORRUPT_MESSAGE,
}
NEW_ID_NEEDED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID})


class Sends(Protocol):
    """What a producer tells the history."""

    def acked(self, batch: Batch, topic_id: bytes, offset: int) -> None: ...

    def unknown(self, batch: Batch) -> None: ...

    def sent(self, batch: Batch) -> None: ...

    def new_producer_id(self, place: str, producer_id: int) -> None: ...


@dataclass(slots=True)
class ProducerPlan:
    topic: str
    partitions: int
    interval_ms: float
    records: int = 3
    acks: int = -1
    idempotent: bool = True
    in_flight: int = 5
    retries: bool = True
    timeout_ms: int = 1_500
    delivery_timeout_ms: int = 120_000
    value_bytes: int = 40
    keys: int = 0
    """How many different ones records have; 0: they have none."""


@dataclass(slots=True, eq=False)
class Batch:
    producer: Producer
    topic: str
    partition: int
    values: list[bytes]
    made_us: int
    producer_id: int = -1
    sequence: int = -1
    tries: int = 0
    topic_id: bytes = b""
    number: int = 0
    """In the order of making."""
    place: int = 0
    """In the order of sending."""
    lane: Lane | None = None


class Lane:
    """One partition's batches: those that wait and those on their way, both in order."""

    __slots__ = ("in_flight", "known", "next_sequence", "not_before_us", "queue", "sent")

    def __init__(self) -> None:
        self.queue: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.next_sequence = 0
        self.known = False
        """Whether the broker has acknowledged a batch of this producer id. Before that it takes any first number."""
        self.sent = 0
        """Batches so far, counted at their first try."""
        self.not_before_us = 0

    @property
    def behind_oldest(self) -> int:
        """How many batches were sent since the oldest whose fate is not known, itself included."""
        unresolved = [batch.place for batch in [*self.in_flight, *self.queue] if batch.tries]
        return self.sent - min(unresolved, default=self.sent)


class Producer(Client):
    def __init__(
        self, world: World, network: Network, place: str, seeds: list[Address], plan: ProducerPlan, sends: Sends
    ) -> None:
        super().__init__(world, network, place, seeds, [plan.topic])
        self.plan = plan
        self.sends = sends
        self.lanes = {index: Lane() for index in range(plan.partitions)}
        self.producer_id = -1
        self._asking_id = False
        self._number = 0
        self.producing = True

    def start(self) -> None:
        super().start()
        self.every(self.plan.interval_ms, self._make)
        if self.plan.idempotent:
            self._take_id()

    @property
    def is_idle(self) -> bool:
        return not any(lane.queue or lane.in_flight for lane in self.lanes.values())

    def _make(self) -> None:
        if not self.producing:
            return
        partition = self.random.randrange(self.plan.partitions)
        lane = self.lanes[partition]
        if len(lane.queue) >= QUEUE_MAX:
            return
        values = []
        for _ in range(1 + self.random.randrange(self.plan.records)):
            self._number += 1
            values.append(f"{self.place}/{self._number}".encode().ljust(self.plan.value_bytes, b"."))
        lane.queue.append(
            Batch(self, self.plan.topic, partition, values, self.world.now_us, lane=lane, number=self._number)
        )
        self._pump(partition)

    def on_metadata(self) -> None:
        for partition in self.lanes:
            self._pump(partition)

    # --- producer ids ---

    def _take_id(self) -> None:
        if not self._asking_id and self.producer_id < 0:
            self._asking_id = True
            self.ask(-1, InitProducerIdRequest(transactional_id=None), self._on_id)

    def _on_id(self, reply: InitProducerIdResponse | None) -> None:
        self._asking_id = False
        if reply is None or reply.error_code:
            self.after(RETRY_MS, self._take_id)
            return
        self.producer_id = reply.producer_id
        self.sends.new_producer_id(self.place, reply.producer_id)
        for partition, lane in self.lanes.items():
            lane.next_sequence = 0
            lane.known = False
            for batch in lane.queue:
                batch.sequence = -1
            self._pump(partition)

    def _number_batch(self, lane: Lane, batch: Batch) -> None:
        batch.producer_id = self.producer_id
        batch.sequence = lane.next_sequence
        lane.next_sequence = (lane.next_sequence + len(batch.values)) & 0x7FFFFFFF

    def _start_over(self) -> None:
        """What is on its way or was tried may be in the log or not: forget it, and begin under a new id."""
        self.producer_id = -1
        for lane in self.lanes.values():
            tried = [batch for batch in lane.queue if batch.tries]
            for batch in [*lane.in_flight, *tried]:
                self.sends.unknown(batch)
            lane.in_flight.clear()
            lane.queue = deque(batch for batch in lane.queue if not batch.tries)
        self.say("continues with a new producer id")
        self._take_id()

    # --- sending ---

    @property
    def _may_send(self) -> bool:
        return self.producer_id >= 0 or not self.plan.idempotent

    def _pump(self, partition: int) -> None:
        lane = self.lanes[partition]
        if not self._may_send:
            return
        if self.world.now_us < lane.not_before_us or not lane.queue:
            return
        leader, _ = self.leader_of(self.plan.topic, partition)
        if leader < 0 or leader not in self.brokers.addresses:
            self._back_off(partition)
            return
        limit = self.plan.in_flight if lane.known or not self.plan.idempotent else 1
        while lane.queue and len(lane.in_flight) < limit and self._may_send:
            if self._give_up_late(lane):
                continue
            if not lane.queue[0].tries and lane.behind_oldest >= BROKER_REMEMBERS:
                return
            self._send(leader, partition, lane, lane.queue.popleft())

    def _give_up_late(self, lane: Lane) -> bool:
        batch = lane.queue[0]
        if self.world.now_us - batch.made_us < self.plan.delivery_timeout_ms * MS:
            return False
        if self.plan.idempotent and batch.tries:
            self._start_over()
            return True
        lane.queue.popleft()
        self.sends.unknown(batch)
        return True

    def _send(self, leader: int, partition: int, lane: Lane, batch: Batch) -> None:
        if self.plan.idempotent and batch.sequence < 0:
            self._number_batch(lane, batch)
        if not batch.tries:
            self.sends.sent(batch)
            batch.place = lane.sent
            lane.sent += 1
        batch.tries += 1
        batch.topic_id = self.known[batch.topic].topic_id
        lane.in_flight.append(batch)
        wall_ms = 1_790_000_000_000 + self.world.now_us // MS
        records = build_batch(
            [Record(0, wall_ms, self._key_of(value), value) for value in batch.values],
            producer_id=batch.producer_id,
            producer_epoch=0 if batch.producer_id >= 0 else -1,
            base_sequence=batch.sequence,
        )
        request = ProduceRequest(
            acks=self.plan.acks,
            timeout_ms=self.plan.timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=batch.topic,
                    topic_id=batch.topic_id,
                    partition_data=[PartitionProduceData(index=partition, records=records)],
                )
            ],
        )
        producer_id = batch.producer_id
        self.ask(
            leader,
            request,
            lambda reply: self._on_reply(batch, producer_id, reply),
            self.plan.timeout_ms + 1_000,
        )

    def _key_of(self, value: bytes) -> bytes | None:
        return key_of(value, self.plan.keys) if self.plan.keys else None

    def _on_reply(self, batch: Batch, producer_id: int, reply: ProduceResponse | None) -> None:
        lane = batch.lane
        assert lane is not None
        if batch not in lane.in_flight or producer_id != batch.producer_id:
            return  # given up meanwhile
        if reply is None:
            self._retry(lane, batch)
            return
        answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.in_flight.remove(batch)
            lane.known = True
            offset = answer.base_offset if code == ErrorCode.NONE else -1
            self.sends.acked(batch, batch.topic_id, offset)
            self._pump(batch.partition)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._on_out_of_order(lane, batch, answer)
        elif code in NEW_ID_NEEDED:
            self._start_over()
        elif code in RETRIED:
            self._retry(lane, batch)
        else:
            name = ErrorCode(code).name
            raise Violation("client-errors", f"{self.place} got {name} ({answer.error_message}) in a produce response")

    def _on_out_of_order(self, lane: Lane, batch: Batch, answer: PartitionProduceResponse) -> None:
        older = [other for other in [*lane.in_flight, *lane.queue] if other.tries and other.number < batch.number]
        if not older:
            raise Violation(
                "idempotence",
                f"{self.place}: sequence {batch.sequence} of {batch.topic}-{batch.partition} is refused although "
                f"everything before it was acknowledged: {answer.error_message}",
            )
        self._retry(lane, batch)

    def _retry(self, lane: Lane, batch: Batch) -> None:
        lane.in_flight.remove(batch)
        if not self.plan.retries:
            self.sends.unknown(batch)
            self.refresh()
            self._pump(batch.partition)
            return
        # Back to where it was: before everything that was made after it.
        place = 0
        while place < len(lane.queue) and lane.queue[place].number < batch.number:
            place += 1
        lane.queue.insert(place, batch)
        self.refresh()
        self._back_off(batch.partition)

    def _back_off(self, partition: int) -> None:
        lane = self.lanes[partition]
        wait_ms = RETRY_MS * (0.5 + self.random.random())
        lane.not_before_us = self.world.now_us + int(wait_ms * MS)
        self.after(wait_ms + 0.01, lambda: self._pump(partition))
        self.refresh()
