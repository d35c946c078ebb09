"""How many messages a queue has, what they are, and the end of them all."""

from __future__ import annotations

from typing import Any

from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.leaders import ask_leader
from skidway.gateways.http.topics.records import Wanted, decode, poll
from skidway.gateways.queues.catalog import ids_of
from skidway.gateways.queues.errors import BadReceipt, NoSuchQueue, QueueUnavailable
from skidway.gateways.queues.holding import why_nothing_comes
from skidway.gateways.queues.leaders import ANSWER_MS, ask_all, nobody_leads
from skidway.gateways.queues.types import Counters, Peeked, Queue
from skidway.limits import MIB
from skidway.records.record import Record
from skidway.shares.states import ARCHIVING, AVAILABLE, BLOCKED, DELAYED
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.schema.count_messages import CountMessagesRequest
from skidway.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

STATES = {AVAILABLE: "visible", BLOCKED: "visible", DELAYED: "delayed", ARCHIVING: "dead"}
IN_FLIGHT = "inFlight"
END_OF_LOG = -1


def counters(call: HttpCall, queue: Queue) -> Steps[Counters]:
    total = Counters()
    counted = yield from _counted(call, queue, 0)
    for each in counted:
        total.visible += each.visible
        total.in_flight += each.in_flight
        total.delayed += each.delayed
        total.dead += each.dead
        total.letter_trouble = total.letter_trouble or each.letter_trouble or ""
        total.blocked += each.blocked
    total.held_up = why_nothing_comes(counted, is_fifo=queue.settings.is_fifo)
    return total


def _counted(call: HttpCall, queue: Queue, shown_max: int) -> Steps[list[Any]]:
    found: dict[int, Any] = {}

    def request(indexes: list[int]) -> Message:
        return CountMessagesRequest(queue.topic_id, indexes, shown_max)

    def take(answer: Any) -> int:
        found[answer.partition_index] = answer
        return int(answer.error_code)

    if (yield from ask_all(call, queue, range(queue.partitions), request, take)):
        raise nobody_leads(queue)
    for each in found.values():
        if each.error_code:
            raise QueueUnavailable(each.error_message or ErrorCode(each.error_code).name.lower())
    return list(found.values())


def peek(call: HttpCall, queue: Queue, count_max: int) -> Steps[list[Peeked]]:
    found: list[Peeked] = []
    for partition in (yield from _counted(call, queue, count_max)):
        if partition.shown:
            yield from _peek_into(call, queue, partition, count_max, found)
    found.sort(key=lambda each: (each.sent_ms, each.partition, each.offset))
    return found[:count_max]


def _peek_into(call: HttpCall, queue: Queue, partition: Any, count_max: int, found: list[Peeked]) -> Steps[None]:
    states: dict[int, tuple[int, int]] = {}
    for each in partition.shown:
        for offset in range(each.first_offset, each.last_offset + 1):
            states[offset] = each.state, each.delivery_count
    ids, index = ids_of(call), partition.partition_index

    def take(record: Record) -> None:
        known = states.pop(record.offset, None)
        if known is not None:
            found.append(
                Peeked(
                    message_id=ids.message_id(queue.topic_id, index, record.offset),
                    body=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=index,
                    offset=record.offset,
                    state=STATES.get(known[0], IN_FLIGHT),
                    delivery_count=known[1],
                    sent_ms=max(0, record.timestamp),
                )
            )

    try:
        while states:
            offset = min(states)
            wanted = Wanted(queue.topic, index, 0, count_max * 10, MIB)
            read = yield from poll(call, wanted, offset)
            end = yield from decode(call, read, offset, wanted.records_max, take)
            if end <= offset:
                break
            for each in [each for each in states if each < end]:
                del states[each]  # no record: a marker, or compacted away
    except Problem as problem:
        raise QueueUnavailable(problem.detail) from None


def purge(call: HttpCall, queue: Queue) -> Steps[None]:
    """The records are deleted, so Kafka's readers do not see them any more either."""
    for index in range(queue.partitions):
        asked = DeleteRecordsTopic(queue.topic, [DeleteRecordsPartition(index, END_OF_LOG)])
        request = DeleteRecordsRequest([asked], ANSWER_MS)
        try:
            answer: Any = yield from ask_leader(call, queue.topic, index, request, call.now_ms + ANSWER_MS)
        except Problem as problem:
            raise (NoSuchQueue if problem.status == 404 else QueueUnavailable)(problem.detail) from None
        code = answer.topics[0].partitions[0].error_code
        if code:
            raise QueueUnavailable(f"the queue could not be purged: {ErrorCode(code).name.replace('_', ' ').lower()}")


def received_ms(call: HttpCall, queue: Queue, receipt: str) -> int:
    known = ids_of(call).read_receipt(receipt)
    if known is None or known.topic_id != queue.topic_id:
        raise BadReceipt(f"this is no receipt of {queue.key.name!r}")
    return known.received_ms
