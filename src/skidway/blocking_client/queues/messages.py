"""Messages of queues: sent, looked at, received and deleted, at the leaders of their partitions.

A send to a standard queue is a produce like any other. What is received is hidden from others until it is deleted or
its time is over; of a receive whose answer is lost, the messages come again after that time.
"""

import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.consumer import Consumed, Consumer
from skidway.blocking_client.errors import RETRIABLE, BrokerError, ClientError, check
from skidway.blocking_client.offsets import READ_COMMITTED
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Delivered, Producer
from skidway.blocking_client.queues.managing import Queue, Queues, ask_leader, ask_leaders
from skidway.limits import DEFAULT_LIMITS, KIB, MIB
from skidway.records.batch import crc_matches, iter_headers
from skidway.records.queue_headers import DEDUP_ID, QUEUE_DELIVER_AT
from skidway.records.record import Headers, Record, build_batch, open_batch, pick_records
from skidway.wire.message import Message
from skidway.wire.schema.count_messages import CountedPartition
from skidway.wire.schema.receive_messages import ReceiveMessagesRequest, ReceiveMessagesResponse
from skidway.wire.schema.send_messages import PartitionToSend, SendMessagesRequest, SendMessagesResponse
from skidway.wire.schema.settle_messages import (
    MessageToSettle,
    PartitionToSettle,
    SettleMessagesRequest,
    SettleMessagesResponse,
)

VISIBLE, IN_FLIGHT, DELAYED, DEAD = "visible", "in flight", "delayed", "dead"
STATES = {0: VISIBLE, 3: DEAD, 6: DELAYED, 7: VISIBLE}
"""Of a leader. One that waits for an earlier message of its group is visible, one that waits for its dead letter dead;
all others are in flight."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
"""What can be said of a message that was received."""
RECEIVED_AT_ONCE = 100
RECEIVE_BYTES = 4 * MIB
SEVERAL_WAIT_MS = 250
"""With several leaders nobody is waited for long: one that has nothing would hold back one that has."""
POLL_MS = 100
FIFO_BATCH_BYTES = 512 * KIB
RECORD_OVERHEAD_BYTES = 64


class MessageTooLarge(ClientError):
    pass


class QueueMessage:
    """One that was looked at or received."""

    __slots__ = ("delivery_count", "record", "state")

    def __init__(self, record: Consumed, delivery_count: int, state: str = IN_FLIGHT) -> None:
        self.record = record
        self.delivery_count = delivery_count
        self.state = state


@dataclass(slots=True)
class Draft:
    body: bytes
    key: bytes | None = None
    """In a FIFO queue, the message's group."""
    headers: Headers = ()
    delay_ms: int | None = None
    """None: the queue's."""
    deduplication_id: str | None = None
    """FIFO queues. None: from the body, if the queue has it so; else one that nobody has used."""
    is_cut: bool = False
    """There was more of the body, and it is too large anyhow."""


@dataclass(slots=True)
class Sent:
    partition: int
    offset: int
    duplicate: bool = False


class QueueMessages:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._queues = Queues(cluster)
        self._producer: Producer | None = None
        self._delivered: list[Delivered] = []

    # --- looking ---

    def peek(self, queue: Queue, count: int) -> list[QueueMessage]:
        """The oldest that are not settled, without taking them."""
        found = self.shown(queue, self._queues.count(queue, count))
        found.sort(key=lambda each: (each.record.timestamp, each.record.partition, each.record.offset))
        return found[:count]

    def shown(self, queue: Queue, counted: Iterable[CountedPartition]) -> list[QueueMessage]:
        """Those whose places are in the answers."""
        left = {each.partition_index: _places(each) for each in counted if each.shown}
        consumer = Consumer(
            self.cluster, queue.name, {}, isolation_level=READ_COMMITTED, on_gone=lambda partition, wanted, start: None
        )
        found: list[QueueMessage] = []
        while left:
            wanted = {partition: min(places) for partition, places in left.items()}
            consumer.positions = wanted
            for record in consumer.poll(POLL_MS):
                known = left[record.partition].pop(record.offset, None)
                if known is not None:
                    found.append(QueueMessage(record, known[1], STATES.get(known[0], IN_FLIGHT)))
            reached = consumer.positions
            if reached == wanted:
                break  # somebody has deleted the rest
            for partition, position in reached.items():
                # What is behind it and was not read is no record: a marker, or compacted away.
                left[partition] = {at: known for at, known in left[partition].items() if at >= position}
            left = {partition: places for partition, places in left.items() if places}
        return found

    # --- receiving ---

    def receive(self, queue: Queue, count: int, *, wait_ms: int, visibility_ms: int) -> list[QueueMessage]:
        """As soon as there is one; empty when the time is over."""
        deadline = time.monotonic() + wait_ms / 1000
        count = min(count, RECEIVED_AT_ONCE)
        while True:
            left_ms = max(0, round((deadline - time.monotonic()) * 1000))
            found = self.cluster.retrying(
                lambda left_ms=left_ms: self._receive_once(queue, count, left_ms, visibility_ms),  # type: ignore[misc]
                topics=[queue.name],
            )
            if found or not left_ms:
                return found

    def _receive_once(self, queue: Queue, count: int, wait_ms: int, visibility_ms: int) -> list[QueueMessage]:
        by_leader: dict[Connection, list[int]] = {}
        for index in range(queue.partitions):
            by_leader.setdefault(self.cluster.leader(queue.name, index), []).append(index)
        wait_ms = wait_ms if len(by_leader) == 1 else min(wait_ms, SEVERAL_WAIT_MS)
        for connection, led in by_leader.items():
            request = ReceiveMessagesRequest(queue.topic_id, led, count, RECEIVE_BYTES, visibility_ms, wait_ms)
            timeout_ms = wait_ms + self.cluster.timeout_ms
            answer = ask_leader(connection, request, ReceiveMessagesResponse, timeout_ms)
            found = [message for each in answer.partitions for message in _delivered(queue.name, each)]
            if found:
                return found
            for each in answer.partitions:
                check(each.error_code, f"receiving from {queue.name}", each.error_message)
        return []

    def delete(self, queue: Queue, messages: Iterable[QueueMessage]) -> list[str]:
        """Received messages that are done. Why some could not be deleted."""
        words = [
            (message.record.partition, MessageToSettle(message.record.offset, message.delivery_count, ACCEPT, 0))
            for message in messages
        ]
        return [refusal for refusal in self.settle(queue, words, "deleting messages") if refusal]

    def settle(self, queue: Queue, words: Sequence[tuple[int, MessageToSettle]], about: str) -> list[str]:
        """What became of messages, by partition. For each why it was refused; empty: it is stored."""
        about = f"{about} of {queue.name}"
        open_words: dict[int, list[int]] = {}
        for number, (partition, _) in enumerate(words):
            open_words.setdefault(partition, []).append(number)
        refusals = [""] * len(words)

        def request(indexes: list[int]) -> Message:
            asked = [PartitionToSettle(index, [words[number][1] for number in open_words[index]]) for index in indexes]
            return SettleMessagesRequest(queue.topic_id, asked)

        def take(answer: Any) -> None:
            told = list(zip(open_words[answer.partition_index], answer.messages, strict=True))
            again = [(number, each) for number, each in told if each.error_code in RETRIABLE]
            for number, each in told:
                code = each.error_code
                refusals[number] = str(BrokerError(code, about, each.error_message)) if code else ""
            if again:
                # The others are not said twice: a release that is done would be refused then.
                open_words[answer.partition_index] = [number for number, _ in again]
                raise BrokerError(again[0][1].error_code, about, again[0][1].error_message)

        ask_leaders(self.cluster, queue, list(open_words), request, SettleMessagesResponse, take)
        return refusals

    # --- sending ---

    def send(self, queue: Queue, drafts: Sequence[Draft]) -> list[Sent]:
        """Returns when all in-sync replicas have them. Raises MessageTooLarge before any is sent."""
        now_ms = time.time_ns() // 1_000_000
        for draft in drafts:
            size = _size(draft)
            if size > queue.message_bytes_max:
                told = f"more than {queue.message_bytes_max}" if draft.is_cut else str(size)
                raise MessageTooLarge(
                    f"a message of {told} bytes; {queue.name} takes at most {queue.message_bytes_max}"
                )
        headers = [_headers(queue, draft, now_ms) for draft in drafts]
        if queue.is_fifo:
            return self._send_in_order(queue, drafts, headers, now_ms)
        return self._produce(queue, drafts, headers)

    def _produce(self, queue: Queue, drafts: Sequence[Draft], headers: list[Headers]) -> list[Sent]:
        if self._producer is None:
            self._producer = Producer(self.cluster, on_delivered=self._delivered.append)
        self._delivered.clear()
        partitions = [
            self._producer.send(queue.name, draft.body, key=draft.key, headers=each)
            for draft, each in zip(drafts, headers, strict=True)
        ]
        self._producer.flush()
        offsets: dict[int, deque[int]] = {}
        for done in sorted(self._delivered, key=lambda done: done.base_offset):
            offsets.setdefault(done.partition, deque()).extend(range(done.base_offset, done.base_offset + done.records))
        return [Sent(partition, offsets[partition].popleft()) for partition in partitions]

    def _send_in_order(self, queue: Queue, drafts: Sequence[Draft], headers: list[Headers], now_ms: int) -> list[Sent]:
        """A leader takes an id once, so what nobody answered is sent again."""
        sent: list[Sent] = []
        start, size = 0, 0
        records: list[Record] = []
        for draft, each in zip(drafts, headers, strict=True):
            assert draft.key is not None, "a message of a FIFO queue has a group"
            record = Record(0, now_ms, draft.key, draft.body, (*each, (DEDUP_ID, _dedup_id(queue, draft))))
            length = RECORD_OVERHEAD_BYTES + len(draft.body) + sum(len(value or b"") for _, value in record.headers)
            if records and (size + length > FIFO_BATCH_BYTES or draft.key != drafts[start].key):
                sent += self._send_batch(queue, records)
                start, size, records = start + len(records), 0, []
            records.append(record)
            size += length
        return sent + (self._send_batch(queue, records) if records else [])

    def _send_batch(self, queue: Queue, records: list[Record]) -> list[Sent]:
        """Of one group."""
        group = records[0].key
        assert group is not None
        index = partition_of_key(group, queue.partitions)
        batch = bytes(build_batch(records))
        commit_ms = max(1, self.cluster.timeout_ms * 4 // 5)  # the leader says that the time is over before we do
        sent: list[Sent] = []

        def request(indexes: list[int]) -> Message:
            return SendMessagesRequest(queue.topic_id, commit_ms, [PartitionToSend(index, batch)])

        def take(answer: Any) -> None:
            check(answer.error_code, f"sending to {queue.name}", answer.error_message)
            sent.extend(Sent(index, each.offset, bool(each.duplicate)) for each in answer.messages)

        ask_leaders(self.cluster, queue, [index], request, SendMessagesResponse, take)
        return sent


def _dedup_id(queue: Queue, draft: Draft) -> bytes:
    if draft.deduplication_id is not None:
        return draft.deduplication_id.encode("utf-8", "surrogateescape")
    return (sha256(draft.body).hexdigest() if queue.content_deduplication else str(uuid.uuid4())).encode()


def _size(draft: Draft) -> int:
    headers = sum(len(name.encode("utf-8", "surrogateescape")) + len(value or b"") for name, value in draft.headers)
    return len(draft.body) + len(draft.key or b"") + headers


def _headers(queue: Queue, draft: Draft, now_ms: int) -> Headers:
    """With the time of delivery, if there is one."""
    delay_ms = queue.delay_ms if draft.delay_ms is None else draft.delay_ms
    if delay_ms <= 0:
        return draft.headers
    return (*draft.headers, (QUEUE_DELIVER_AT, b"%d" % (now_ms + delay_ms)))


def _places(counted: CountedPartition) -> dict[int, tuple[int, int]]:
    """State and number of deliveries, by offset."""
    return {
        offset: (each.state, each.delivery_count)
        for each in counted.shown
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def _delivered(topic: str, partition: Any) -> list[QueueMessage]:
    """The messages that were delivered, out of the batches around them. One that cannot be read comes again, and is
    dead at last."""
    counts = {
        offset: each.delivery_count
        for each in partition.delivered
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    found: list[QueueMessage] = []
    if not counts:
        return found
    view = memoryview(partition.records or b"")
    for start, header in iter_headers(view):
        batch = view[start : start + header.size]
        if header.is_control or not crc_matches(batch):
            continue
        opened = open_batch(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max)
        for record in pick_records(*opened, counts):
            found.append(QueueMessage(Consumed(topic, partition.partition_index, *record), counts[record.offset]))
    return found
