"""A message of SQS as a record of the queue's topic, and back.

An attribute is a header of the record: its name, and its text or bytes. What headers cannot say is in one more of them,
`NOTES`: the types of attributes, the MD5 of the body, what the system knows of the sender. So readers of other doors
find the attributes. In a record that came by another door every header is an attribute that SQS can show as one.
"""

from __future__ import annotations

import msgspec

from skidway.gateways.queues.types import MessageToSend, Received
from skidway.gateways.sqs.digests import md5_of_body
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.outgoing import Outgoing, check_attribute_name
from skidway.gateways.sqs.shapes import AttributeValue, AttributeValues
from skidway.gateways.sqs.texts import is_allowed, shown
from skidway.records.queue_headers import GROUP_ID
from skidway.records.record import Headers

NOTES = "skidway.sqs"
OURS = ("skidway.", "dlq.", "__dlq.")
"""Headers of these prefixes are not attributes."""


class Notes(msgspec.Struct, omit_defaults=True):
    md5: str = ""
    sender: str = ""
    types: dict[str, str] = {}
    """Of all attributes, by their names."""
    trace: str | None = None
    dedup: str | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Notes)


def to_send(outgoing: Outgoing, sender: str, *, is_fifo: bool) -> MessageToSend:
    group, dedup = outgoing.group_id, outgoing.deduplication_id
    notes = Notes(outgoing.body_md5, sender, trace=outgoing.trace, dedup=dedup)
    headers: list[tuple[str, bytes | None]] = []
    for name, value in outgoing.attributes.items():
        assert value.data_type is not None
        notes.types[name] = value.data_type
        raw = (value.string_value or "").encode() if value.binary_value is None else value.binary_value
        headers.append((name, raw))
    headers.append((NOTES, _encode(notes)))
    if group is not None and not is_fifo:
        headers.append((GROUP_ID, group.encode()))
    return MessageToSend(
        body=outgoing.body,
        key=None if group is None else group.encode(),
        headers=tuple(headers),
        delay_ms=None if outgoing.delay_s is None else outgoing.delay_s * 1_000,
        deduplication_id=dedup if is_fifo else None,
        size=outgoing.size,
    )


def notes_of(headers: Headers) -> Notes:
    """Empty ones if there are none that can be read."""
    for name, value in headers:
        if name == NOTES and value is not None:
            try:
                return _decoder.decode(value)
            except (msgspec.DecodeError, UnicodeError):
                break
    return Notes()


def body_of(received: Received, notes: Notes) -> tuple[str, str]:
    """The text, and its MD5."""
    raw = received.body or b""
    if notes.md5:
        try:
            return raw.decode(), notes.md5
        except UnicodeDecodeError:
            pass
    text = shown(raw)
    return text, md5_of_body(text.encode())


def attributes_of(headers: Headers, notes: Notes) -> AttributeValues:
    found: AttributeValues = {}
    for name, raw in headers:
        kind = notes.types.get(name)
        if kind is None:
            if notes.md5 or not raw or name.startswith(OURS) or not _is_name(name):
                continue
            kind = "String" if _is_text(raw) else "Binary"
        if raw is None:
            continue
        if kind.startswith("Binary") or not _is_text(raw):
            found[name] = AttributeValue(data_type=kind, binary_value=raw)
        else:
            found[name] = AttributeValue(data_type=kind, string_value=raw.decode())
    return found


def _is_name(name: str) -> bool:
    try:
        check_attribute_name(name)
    except SqsError:
        return False
    return True


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return is_allowed(raw)
