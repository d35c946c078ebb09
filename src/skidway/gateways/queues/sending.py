"""Messages into a queue: plain records, written by the leaders of its partitions as if a Kafka client had sent them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from skidway.broker.shares.opening import TIME_HEADERS
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.production import Production
from skidway.gateways.http.topics.shapes import Refusal
from skidway.gateways.queues.catalog import ids_of
from skidway.gateways.queues.errors import (
    MessageTooLarge,
    NoSuchQueue,
    OutcomeUnknown,
    QueueError,
    QueueUnavailable,
)
from skidway.gateways.queues.sending_in_order import send_in_order
from skidway.gateways.queues.types import MessageToSend, Queue, Sent
from skidway.records.queue_headers import QUEUE_DELIVER_AT
from skidway.records.record import Headers
from skidway.steps import Steps

_TOO_LARGE = ("message_too_large", "record_list_too_large")
LOST = "leader_lost"
MESSAGES_PER_STEP = 20


def send(call: HttpCall, queue: Queue, messages: Sequence[MessageToSend]) -> Steps[list[Sent | QueueError]]:
    if queue.settings.is_fifo:
        return (yield from _send_in_order(call, queue, messages))
    results: list[Sent | QueueError | None] = [None] * len(messages)
    numbers: list[int] = []
    try:
        production = Production(call, queue.topic)
        for number, message in enumerate(messages):
            if number % MESSAGES_PER_STEP == MESSAGES_PER_STEP - 1:
                yield None
            refusal = check_size(queue, message)
            if refusal is not None:
                results[number] = refusal
                continue
            headers = _headers(queue, message, production.wall_ms)
            production.add(message.key, message.body, headers, message.partition, None)
            numbers.append(number)
        yield from production.send_all()
    except Problem as problem:
        raise _error(problem.status, problem.code, problem.detail) from None
    ids = ids_of(call)
    for number, produced in zip(numbers, production.offsets, strict=True):
        if produced.error is not UNSET:
            results[number] = _refused(produced.error)
            continue
        assert produced.offset is not UNSET
        message_id = ids.message_id(queue.topic_id, produced.partition, produced.offset)
        results[number] = Sent(
            message_id=message_id, partition=produced.partition, offset=produced.offset, sent_ms=production.wall_ms
        )
    return [each for each in results if each is not None]


def _send_in_order(call: HttpCall, queue: Queue, messages: Sequence[MessageToSend]) -> Steps[list[Sent | QueueError]]:
    wall_ms = call.site.node.clock.wall_ms()
    refused = {number: refusal for number, each in enumerate(messages) if (refusal := check_size(queue, each))}
    taken = [
        (number, message, _headers(queue, message, wall_ms))
        for number, message in enumerate(messages)
        if number not in refused
    ]
    results = yield from send_in_order(call, queue, taken, len(messages))
    found = [refused.get(number, result) for number, result in enumerate(results)]
    return [each for each in found if each is not None]


def check_size(queue: Queue, message: MessageToSend) -> MessageTooLarge | None:
    size = _size(message) if message.size is None else message.size
    bytes_max = queue.settings.message_bytes_max
    if size > bytes_max:
        return MessageTooLarge(f"a message of {size} bytes; {queue.key.name} takes at most {bytes_max}")
    return None


def _size(message: MessageToSend) -> int:
    headers = sum(len(name.encode("utf-8", "surrogateescape")) + len(value or b"") for name, value in message.headers)
    return len(message.body or b"") + len(message.key or b"") + headers


def _headers(queue: Queue, message: MessageToSend, now_ms: int) -> Headers:
    """With the time of delivery, if there is one, or if an attribute could be taken for one."""
    delay_ms = queue.settings.delay_ms if message.delay_ms is None else message.delay_ms
    if delay_ms <= 0 and not any(name in TIME_HEADERS for name, _ in message.headers):
        return message.headers
    due_ms = now_ms + delay_ms if delay_ms > 0 else 0
    return (*message.headers, (QUEUE_DELIVER_AT, b"%d" % due_ms))


def _refused(refusal: Refusal) -> QueueError:
    return _error(
        413 if refusal.code in _TOO_LARGE else 503 if refusal.retryable else 422, refusal.code, refusal.detail
    )


def _error(status: int, code: str, detail: str) -> QueueError:
    if code == LOST:
        return OutcomeUnknown(detail)
    if status == 404:
        return NoSuchQueue(detail)
    if status == 413:
        return MessageTooLarge(detail)
    return QueueUnavailable(detail) if status == 503 else QueueError(detail)
