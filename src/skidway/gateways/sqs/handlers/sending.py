"""SendMessage and SendMessageBatch."""

from __future__ import annotations

from hashlib import sha256

from skidway.gateways.queues import service
from skidway.gateways.queues.errors import QueueError
from skidway.gateways.queues.types import MessageToSend, Queue, Sent
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.asking import Asked, translate
from skidway.gateways.sqs.batches import check_entries, check_total, failed
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.outgoing import (
    Outgoing,
    check_content,
    check_delay_for_fifo,
    check_for_fifo,
    check_for_standard,
)
from skidway.gateways.sqs.records import to_send
from skidway.gateways.sqs.shapes import Answer, ToSend
from skidway.gateways.sqs.texts import is_allowed
from skidway.steps import Steps

TRACE_LENGTH_MAX = 1_024
SMALL_BYTES = 16 << 10
"""Larger messages are a step each."""


def send_message(asked: Asked, request: shapes.SendMessage) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    outgoing = _check(queue, request)
    _check_group(queue, request, in_batch=False)
    (result,) = yield from service.send(asked.call, queue, [_message(asked, queue, outgoing)])
    if isinstance(result, QueueError):
        raise result
    return shapes.Sent(
        message_id=result.message_id,
        md5_of_message_body=outgoing.body_md5,
        md5_of_message_attributes=outgoing.attributes_md5,
        md5_of_message_system_attributes=outgoing.system_md5,
        sequence_number=result.sequence_number if queue.settings.is_fifo else None,
    )


def send_message_batch(asked: Asked, request: shapes.SendMessageBatch) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    entries = request.entries or []
    check_entries(entries, "SendMessageBatch")
    check_total(entries)
    is_fifo = queue.settings.is_fifo
    for entry in entries:
        _check_group(queue, entry, in_batch=True)
    refused: dict[str, SqsError] = {}
    checked: dict[str, Outgoing] = {}
    for entry in entries:
        assert entry.id is not None
        try:
            checked[entry.id] = _check(queue, entry)
        except SqsError as error:
            refused[entry.id] = error
        else:
            if checked[entry.id].size > SMALL_BYTES:
                yield None
    messages = [_message(asked, queue, outgoing) for outgoing in checked.values()]
    results: list[Sent | QueueError] = []
    if messages:
        results = yield from service.send(asked.call, queue, messages)
    answer = shapes.SentBatch(successful=[], failed=[])
    for (entry_id, outgoing), result in zip(checked.items(), results, strict=True):
        if isinstance(result, QueueError):
            refused[entry_id] = translate(result)
        else:
            answer.successful.append(_sent(entry_id, outgoing, result, is_fifo))
    ids = [entry.id or "" for entry in entries]
    answer.failed = [failed(each, refused[each]) for each in ids if each in refused]
    return answer


def _sent(entry_id: str, outgoing: Outgoing, sent: Sent, is_fifo: bool) -> shapes.SentEntry:
    return shapes.SentEntry(
        id=entry_id,
        message_id=sent.message_id,
        md5_of_message_body=outgoing.body_md5,
        md5_of_message_attributes=outgoing.attributes_md5,
        md5_of_message_system_attributes=outgoing.system_md5,
        sequence_number=sent.sequence_number if is_fifo else None,
    )


def _check_group(queue: Queue, given: ToSend, *, in_batch: bool) -> None:
    """Raises SqsError."""
    settings = queue.settings
    if settings.is_fifo:
        check_for_fifo(given, deduplicates_content=settings.content_deduplication, in_batch=in_batch)
    else:
        check_for_standard(given)


def _check(queue: Queue, given: ToSend) -> Outgoing:
    """Raises SqsError."""
    outgoing = check_content(given, queue.settings.message_bytes_max)
    if queue.settings.is_fifo:
        check_delay_for_fifo(given)
        outgoing.delay_s = None
        if outgoing.deduplication_id is None:
            outgoing.deduplication_id = sha256(outgoing.body).hexdigest()
    return outgoing


def _message(asked: Asked, queue: Queue, outgoing: Outgoing) -> MessageToSend:
    if outgoing.trace is None:
        outgoing.trace = _trace(asked)
    return to_send(outgoing, asked.identity.key_id or asked.identity.account, is_fifo=queue.settings.is_fifo)


def _trace(asked: Asked) -> str | None:
    """A header of the request says the same as the attribute."""
    given = asked.call.head.headers.get(b"x-amzn-trace-id", b"")
    if not given or len(given) > TRACE_LENGTH_MAX or not given.isascii() or not is_allowed(given):
        return None
    return given.decode("ascii")
