"""What became of messages: told to the leaders of their partitions, each answered by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skidway.broker.queues.host import ANY_DELIVERY, UNTAKE
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.queues.catalog import ids_of
from skidway.gateways.queues.errors import (
    BadReceipt,
    NoSuchMessage,
    NotInFlight,
    QueueError,
    QueueUnavailable,
    StaleReceipt,
)
from skidway.gateways.queues.ids import Ids
from skidway.gateways.queues.leaders import ask_all, nobody_leads
from skidway.gateways.queues.types import Accept, Ack, Action, Extend, Queue, Received, Reject, Release
from skidway.limits import INT32_MAX
from skidway.shares.states import Verb
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.schema.settle_messages import MessageToSettle, PartitionToSettle, SettleMessagesRequest

ACKS_PER_STEP = 20


def settle(call: HttpCall, queue: Queue, acks: Sequence[Ack]) -> Steps[list[QueueError | None]]:
    results: list[QueueError | None] = [None] * len(acks)
    words: dict[int, list[tuple[int, MessageToSettle]]] = {}
    ids = ids_of(call)
    for number, ack in enumerate(acks):
        if number % ACKS_PER_STEP == ACKS_PER_STEP - 1:
            yield None
        try:
            index, word = _word(ids, queue, ack)
            words.setdefault(index, []).append((number, word))
        except QueueError as error:
            results[number] = error.with_traceback(None)
    if not words:
        return results

    def request(indexes: list[int]) -> Message:
        asked = [PartitionToSettle(index, [word for _, word in words[index]]) for index in indexes]
        return SettleMessagesRequest(queue.topic_id, asked)

    def take(answer: Any) -> int:
        code = 0
        for (number, _), each in zip(words[answer.partition_index], answer.messages, strict=True):
            results[number] = _error(acks[number], each.error_code, each.error_message)
            code = each.error_code
        return code

    for index in (yield from ask_all(call, queue, words, request, take)):
        for number, _ in words[index]:
            results[number] = nobody_leads(queue)
    return results


def _word(ids: Ids, queue: Queue, ack: Ack) -> tuple[int, MessageToSettle]:
    verb, time_ms, reason = _said(ack.action)
    if ack.receipt:
        receipt = ids.read_receipt(ack.receipt)
        if receipt is None or receipt.topic_id != queue.topic_id or not receipt.delivery_count:
            raise BadReceipt(f"this is no receipt of {queue.key.name!r}")
        if receipt.partition >= queue.partitions:
            raise BadReceipt(f"there is no partition {receipt.partition} of {queue.key.name!r}")
        return receipt.partition, MessageToSettle(receipt.offset, receipt.delivery_count, verb, time_ms, reason)
    place = ids.place_of(ack.message_id, (queue.topic_id,))
    if place is None or place.partition >= queue.partitions:
        raise NoSuchMessage(f"there is no message {ack.message_id[:50]!r} in {queue.key.name!r}")
    return place.partition, MessageToSettle(place.offset, ANY_DELIVERY, verb, time_ms, reason)


def _said(action: Action) -> tuple[int, int, str | None]:
    match action:
        case Accept():
            return Verb.ACCEPT, 0, None
        case Release(delay_ms):
            return Verb.RELEASE, min(delay_ms, INT32_MAX), None
        case Reject(reason):
            return Verb.REJECT, 0, reason or None
        case Extend(visibility_ms):
            return Verb.RENEW, min(visibility_ms, INT32_MAX), None


def _error(ack: Ack, code: int, text: str | None) -> QueueError | None:
    if not code:
        return None
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return (BadReceipt if ack.receipt else NoSuchMessage)("there is no such message: it is settled, or never was")
    if code == ErrorCode.INVALID_RECORD_STATE:
        kind = NotInFlight if isinstance(ack.action, Extend) else StaleReceipt
        return kind(text or "the message was settled, or delivered again, since")
    if code == ErrorCode.INVALID_REQUEST:
        return BadReceipt(text or "there was no such delivery")
    return QueueUnavailable(text or ErrorCode(code).name.replace("_", " ").lower())


def put_back(call: HttpCall, queue: Queue, received: Sequence[Received]) -> Steps[None]:
    """These reached nobody: others get them at once, and the delivery does not count. Where no leader answers, they
    come again when their time is over."""
    words: dict[int, list[MessageToSettle]] = {}
    for each in received:
        words.setdefault(each.partition, []).append(MessageToSettle(each.offset, each.delivery_count, UNTAKE, 0))

    def request(indexes: list[int]) -> Message:
        return SettleMessagesRequest(queue.topic_id, [PartitionToSettle(index, words[index]) for index in indexes])

    def take(answer: Any) -> int:
        return int(answer.messages[0].error_code) if answer.messages else 0

    if words:
        yield from ask_all(call, queue, words, request, take)


def untake_request(topic_id: bytes, taken: Sequence[Any]) -> SettleMessagesRequest:
    """What was delivered to nobody: partitions of a ReceiveMessages."""
    return SettleMessagesRequest(
        topic_id,
        [
            PartitionToSettle(
                partition.partition_index,
                [
                    MessageToSettle(offset, each.delivery_count, UNTAKE, 0)
                    for each in partition.delivered
                    for offset in range(each.first_offset, each.last_offset + 1)
                ],
            )
            for partition in taken
        ],
    )
