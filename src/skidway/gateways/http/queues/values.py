"""Messages between JSON and records."""

from __future__ import annotations

import binascii

import msgspec
from msgspec import UNSET, Raw

from skidway.gateways.http.problems import Problem
from skidway.gateways.http.queues.shapes import Message, ReceivedMessage, SendBody
from skidway.gateways.http.topics.values import HEADERS_MAX, bytes_of, shown
from skidway.gateways.queues.types import MessageToSend, Peeked, Received
from skidway.records.queue_headers import DEDUP_ID, QUEUE_DELIVER_AT
from skidway.records.record import Headers

CONTENT_TYPE = "content-type"
JSON = b"application/json"
DELAY_MS_MAX = 43_200_000


def to_send(given: Message | SendBody, wall_ms: int) -> MessageToSend:
    """Raises Problem."""
    body, body_base64, key, attributes = given.body, given.body_base64, given.key, given.attributes
    if body is UNSET and body_base64 is UNSET:
        raise Problem(422, "bad_value", "a message needs a body, or a bodyBase64")
    try:
        value = bytes_of("body", body, body_base64)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Problem(400, "bad_json", f"{error} in a body") from None
    headers: list[tuple[str, bytes | None]] = []
    if attributes is not UNSET:
        if len(attributes) > HEADERS_MAX:
            raise Problem(422, "bad_value", f"a message has {len(attributes)} attributes; at most {HEADERS_MAX}")
        headers = [(name, None if text is None else text.encode()) for name, text in attributes.items()]
    if body is not UNSET and bytes(body)[:1] not in (b'"', b"n") and CONTENT_TYPE not in dict(headers):
        headers.append((CONTENT_TYPE, JSON))
    if given.group_id is not UNSET:
        if key is not UNSET:
            raise Problem(422, "bad_value", "groupId is the key of a message: give one of them")
        key = given.group_id
    return MessageToSend(
        body=value,
        key=None if key is UNSET or key is None else key.encode(),
        deduplication_id=None if given.dedup_id is UNSET else given.dedup_id,
        headers=headers,
        delay_ms=_delay(given, wall_ms),
    )


def _delay(given: Message | SendBody, wall_ms: int) -> int | None:
    """None: it is not said. Raises Problem."""
    if given.deliver_at is UNSET:
        return None if given.delay_seconds is UNSET else int(given.delay_seconds * 1_000)
    if given.delay_seconds is not UNSET:
        raise Problem(422, "bad_value", "delaySeconds and deliverAt are two ways to say when: give one")
    if given.deliver_at > wall_ms + DELAY_MS_MAX:
        raise Problem(422, "bad_value", f"deliverAt is more than {DELAY_MS_MAX} ms ahead: send the message later")
    return max(0, given.deliver_at - wall_ms)


def show(message: Received | Peeked) -> ReceivedMessage:
    answer = ReceivedMessage(message.message_id, delivery_count=message.delivery_count, sent_at=message.sent_ms)
    if isinstance(message, Received):
        answer.receipt = message.receipt
    else:
        answer.state = message.state
    answer.key, answer.key_base64 = shown(message.key)
    headers = message.headers
    if message.body is not None and (CONTENT_TYPE, JSON) in headers and _is_json(message.body):
        answer.body = Raw(message.body)
        headers = [each for each in headers if each != (CONTENT_TYPE, JSON)]
    else:
        answer.body, answer.body_base64 = shown(message.body)
    _show_headers(answer, headers)
    return answer


def _show_headers(answer: ReceivedMessage, headers: Headers) -> None:
    """Of those with one name the last is shown."""
    texts: dict[str, str | None] = {}
    others: dict[str, str] = {}
    for name, value in headers:
        if name in (QUEUE_DELIVER_AT, DEDUP_ID):
            continue
        name = name.encode("utf-8", "replace").decode()
        text, _ = shown(value)
        if text is UNSET:
            assert value is not None
            others[name] = binascii.b2a_base64(value, newline=False).decode()
        else:
            texts[name] = text
    answer.attributes = texts or UNSET
    answer.attributes_base64 = others or UNSET


def _is_json(data: bytes) -> bool:
    """Anybody may have said so."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
