"""What holds for the entries of every batch, before any of them is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skidway.gateways.sqs.bounds import BATCH_ENTRIES_MAX, ENTRY_ID, MESSAGE_BYTES_MAX
from skidway.gateways.sqs.errors import (
    SENDER,
    SqsError,
    batch_too_long,
    empty_batch,
    id_repeated,
    invalid_entry_id,
    missing_parameter,
    too_many_entries,
)
from skidway.gateways.sqs.outgoing import size_of
from skidway.gateways.sqs.shapes import FailedEntry, SendMessageBatchEntry

REQUIRED = {
    "SendMessageBatch": [("message_body", "MessageBody")],
    "DeleteMessageBatch": [("receipt_handle", "ReceiptHandle")],
    "ChangeMessageVisibilityBatch": [("receipt_handle", "ReceiptHandle")],
}
"""Fields of every entry beside its id, by their names here and on the wire."""

_SURELY_FITS = MESSAGE_BYTES_MAX // 4
"""Characters: none has more than four bytes."""


def check_entries(entries: Sequence[Any] | None, action: str) -> None:
    """Raises SqsError, for the whole request."""
    name = action + "RequestEntry"
    if not entries:
        raise empty_batch(name)
    if len(entries) > BATCH_ENTRIES_MAX:
        raise too_many_entries(len(entries))
    known: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.id is None:
            raise missing_parameter(f"{name}.{number}.Id")
        if not ENTRY_ID.fullmatch(entry.id):
            raise invalid_entry_id()
        if entry.id in known:
            raise id_repeated(entry.id)
        known.add(entry.id)
        for field, wire in REQUIRED[action]:
            if getattr(entry, field) is None:
                raise missing_parameter(f"{name}.{number}.{wire}")


def check_total(entries: Sequence[SendMessageBatchEntry]) -> None:
    """A queue's own limit does not bound it. Raises SqsError."""
    characters = sum([len(entry.message_body or "") for entry in entries])
    if characters <= _SURELY_FITS and not any(entry.message_attributes for entry in entries):
        return
    total = sum(map(size_of, entries))
    if total > MESSAGE_BYTES_MAX:
        raise batch_too_long(total)


def failed(entry_id: str, error: SqsError) -> FailedEntry:
    return FailedEntry(id=entry_id, sender_fault=error.fault == SENDER, code=error.code, message=error.message)
