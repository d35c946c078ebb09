"""Messages into a FIFO queue: to the leaders of their groups, once for each de-duplication id.

Because a leader takes an id once, a request that nobody answered is sent again. Messages of a partition that do not fit
into one batch go in several, one after another; if one of them fails, those behind it are not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from skidway.blocking_client.partitioners import partition_of_key
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.queues.catalog import BATCH_SLACK_BYTES, ids_of
from skidway.gateways.queues.errors import BadMessage, OutcomeUnknown, QueueError, QueueUnavailable
from skidway.gateways.queues.leaders import ask_all
from skidway.gateways.queues.types import MessageToSend, Queue, Sent
from skidway.records.queue_headers import DEDUP_ID
from skidway.records.record import Headers, Record, build_batch
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.schema.send_messages import PartitionToSend, SendMessagesRequest

RECORD_OVERHEAD_BYTES = 1_024
COMMIT_MS = 8_000
"""Less than a leader is waited for: it answers that the time is over."""
MESSAGES_PER_STEP = 20
Result = Sent | QueueError


class Batch:
    """Records of one partition that go together."""

    __slots__ = ("numbers", "records", "size")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        """Of its messages, in the request."""
        self.records: list[Record] = []
        self.size = 0


class InOrder:
    """Messages of one request, and what became of them."""

    __slots__ = ("_batches", "_call", "_queue", "_wall_ms", "results")

    def __init__(self, call: HttpCall, queue: Queue, count: int) -> None:
        self._call = call
        self._queue = queue
        self._wall_ms = call.site.node.clock.wall_ms()
        self._batches: dict[int, list[Batch]] = {}
        self.results: list[Result | None] = [None] * count

    def add(self, number: int, message: MessageToSend, headers: Headers) -> None:
        """Raises BadMessage."""
        queue = self._queue
        if message.key is None:
            raise BadMessage("a message of a FIFO queue needs a group")
        known = message.deduplication_id
        if known is None:
            if not queue.settings.content_deduplication:
                raise BadMessage("a message needs a de-duplication id, or the queue to take it from the content")
            known = sha256(message.body or b"").hexdigest()
        headers = (*headers, (DEDUP_ID, known.encode()))
        record = Record(0, self._wall_ms, message.key, message.body, headers)
        size = len(message.key) + len(message.body or b"") + RECORD_OVERHEAD_BYTES
        for name, value in headers:
            size += len(name) * 4 + len(value or b"") + 10
        index = 0 if queue.partitions == 1 else partition_of_key(message.key, queue.partitions)
        batches = self._batches.setdefault(index, [])
        if not batches or batches[-1].size + size > queue.settings.message_bytes_max + BATCH_SLACK_BYTES:
            batches.append(Batch())
        batch = batches[-1]
        batch.numbers.append(number)
        batch.records.append(record)
        batch.size += size

    def send(self) -> Steps[None]:
        """Raises NoSuchQueue."""
        while self._batches:
            now = {index: batches.pop(0) for index, batches in self._batches.items()}
            yield from self._send(now)
            for index, batch in now.items():
                failed = isinstance(self.results[batch.numbers[0]], QueueError)
                for later in self._batches[index] if failed else ():
                    self._note(later, QueueUnavailable("a message before it was not sent: send it again behind that"))
                if failed or not self._batches[index]:
                    del self._batches[index]

    def _send(self, batches: dict[int, Batch]) -> Steps[None]:
        built: dict[int, bytearray] = {}
        for index, batch in batches.items():
            yield None
            built[index] = build_batch(batch.records)

        def request(indexes: list[int]) -> Message:
            # A leader on this node stamps a batch where it lies, so each gets a copy.
            asked = [PartitionToSend(index, memoryview(bytearray(built[index]))) for index in indexes]
            return SendMessagesRequest(self._queue.topic_id, COMMIT_MS, asked)

        for index in (yield from ask_all(self._call, self._queue, batches, request, self._taker(batches))):
            self._note(batches[index], OutcomeUnknown("no leader answered: it may have been sent or not"))

    def _taker(self, batches: dict[int, Batch]) -> Callable[[Any], int]:
        ids, queue = ids_of(self._call), self._queue

        def take(answer: Any) -> int:
            index, code = answer.partition_index, int(answer.error_code)
            batch = batches[index]
            if code:
                text = answer.error_message or ErrorCode(code).name.replace("_", " ").lower()
                kind = OutcomeUnknown if code == ErrorCode.REQUEST_TIMED_OUT else QueueUnavailable
                self._note(batch, kind(text))
                return code
            for number, sent in zip(batch.numbers, answer.messages, strict=True):
                self.results[number] = Sent(
                    message_id=ids.message_id(queue.topic_id, index, sent.offset),
                    partition=index,
                    offset=sent.offset,
                    sent_ms=self._wall_ms,
                    duplicate=bool(sent.duplicate),
                )
            return code

        return take

    def _note(self, batch: Batch, error: QueueError) -> None:
        for number in batch.numbers:
            self.results[number] = error


def send_in_order(
    call: HttpCall, queue: Queue, messages: Sequence[tuple[int, MessageToSend, Headers]], count: int
) -> Steps[list[Result | None]]:
    """The results of these, by their numbers among `count`."""
    sending = InOrder(call, queue, count)
    for number, message, headers in messages:
        if number % MESSAGES_PER_STEP == MESSAGES_PER_STEP - 1:
            yield None
        try:
            sending.add(number, message, headers)
        except BadMessage as error:
            sending.results[number] = error.with_traceback(None)
    yield from sending.send()
    return sending.results
