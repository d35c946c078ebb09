"""DeleteMessage and ChangeMessageVisibility, alone and in batches."""

from __future__ import annotations

from collections.abc import Sequence

from skidway.gateways.queues import service
from skidway.gateways.queues.errors import BadReceipt, NoSuchMessage, NotInFlight, QueueError, StaleReceipt
from skidway.gateways.queues.types import Accept, Ack, Extend, Queue
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.asking import Asked, translate
from skidway.gateways.sqs.batches import check_entries, failed
from skidway.gateways.sqs.bounds import VISIBILITY_S_MAX
from skidway.gateways.sqs.errors import SqsError, invalid_receipt, invalid_value, missing_parameter
from skidway.gateways.sqs.shapes import Answer
from skidway.steps import Steps

NOT_AVAILABLE = "Message does not exist or is not available for visibility timeout change."


def delete_message(asked: Asked, request: shapes.DeleteMessage) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    (error,) = yield from _delete(asked, queue, [request.receipt_handle or ""])
    if error is not None:
        raise error
    return shapes.NOTHING


def delete_message_batch(asked: Asked, request: shapes.DeleteMessageBatch) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    entries = request.entries or []
    check_entries(entries, "DeleteMessageBatch")
    errors = yield from _delete(asked, queue, [entry.receipt_handle or "" for entry in entries])
    return _batch([entry.id or "" for entry in entries], errors)


def change_message_visibility(asked: Asked, request: shapes.ChangeMessageVisibility) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    asked_for = [(request.receipt_handle or "", request.visibility_timeout or 0)]
    (error,) = yield from _change(asked, queue, asked_for)
    if error is not None:
        raise error
    return shapes.NOTHING


def change_message_visibility_batch(asked: Asked, request: shapes.ChangeMessageVisibilityBatch) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    entries = request.entries or []
    check_entries(entries, "ChangeMessageVisibilityBatch")
    errors: list[SqsError | None] = [None] * len(entries)
    asked_for: dict[int, tuple[str, int]] = {}
    for number, entry in enumerate(entries):
        if entry.visibility_timeout is None:
            # The entry alone fails, as at Amazon: SDKs for Go before September 2024 leave a zero out.
            missing = f"ChangeMessageVisibilityBatchRequestEntry.{number + 1}.VisibilityTimeout"
            errors[number] = missing_parameter(missing)
        else:
            asked_for[number] = (entry.receipt_handle or "", entry.visibility_timeout)
    changed = yield from _change(asked, queue, list(asked_for.values()))
    for number, error in zip(asked_for, changed, strict=True):
        errors[number] = error
    return _batch([entry.id or "" for entry in entries], errors)


def _batch(ids: Sequence[str], errors: Sequence[SqsError | None]) -> Answer:
    answer = shapes.DoneBatch(successful=[], failed=[])
    for entry_id, error in zip(ids, errors, strict=True):
        if error is None:
            answer.successful.append(shapes.DoneEntry(id=entry_id))
        else:
            answer.failed.append(failed(entry_id, error))
    return answer


def _delete(asked: Asked, queue: Queue, receipts: Sequence[str]) -> Steps[list[SqsError | None]]:
    action = Accept()
    results = yield from service.settle(asked.call, queue, [Ack(action=action, receipt=each) for each in receipts])
    return [_delete_error(queue, receipt, result) for receipt, result in zip(receipts, results, strict=True)]


def _delete_error(queue: Queue, receipt: str, error: QueueError | None) -> SqsError | None:
    if isinstance(error, StaleReceipt | NotInFlight):
        if queue.settings.is_fifo:
            return invalid_value(receipt, "ReceiptHandle", "The receipt handle has expired.")
        return None  # another client has it, or it is gone: as Amazon, nothing to complain about
    if isinstance(error, BadReceipt | NoSuchMessage):  # the latter for a receipt that is empty
        return invalid_receipt(receipt)
    return None if error is None else translate(error)


def _change(asked: Asked, queue: Queue, asked_for: Sequence[tuple[str, int]]) -> Steps[list[SqsError | None]]:
    wall_ms = asked.call.site.node.clock.wall_ms()
    results: list[SqsError | None] = []
    acks: list[Ack] = []
    for receipt, seconds in asked_for:
        error = _check_change(asked, queue, receipt, seconds, wall_ms)
        results.append(error)
        if error is None:
            acks.append(Ack(action=Extend(seconds * 1_000), receipt=receipt))
    answers = iter((yield from service.settle(asked.call, queue, acks)))
    for number, (receipt, _) in enumerate(asked_for):
        if results[number] is not None:
            continue
        refused = next(answers)
        if isinstance(refused, BadReceipt | StaleReceipt | NotInFlight):
            results[number] = invalid_value(receipt, "ReceiptHandle", NOT_AVAILABLE)
        else:
            results[number] = None if refused is None else translate(refused)
    return results


def _check_change(asked: Asked, queue: Queue, receipt: str, seconds: int, wall_ms: int) -> SqsError | None:
    if not 0 <= seconds <= VISIBILITY_S_MAX:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_S_MAX}."
        return invalid_value(seconds, "VisibilityTimeout", reason)
    try:
        received_ms = service.received_ms(asked.call, queue, receipt)
    except BadReceipt:
        return invalid_receipt(receipt)
    if wall_ms + seconds * 1_000 - received_ms > VISIBILITY_S_MAX * 1_000:
        reason = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]"
        return invalid_value(seconds, "VisibilityTimeout", reason)
    return None
