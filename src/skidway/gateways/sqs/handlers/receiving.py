"""ReceiveMessage: messages with what was asked for of their attributes.

A poll of 20 s is answered after 19.5 s. Clients that count 20 s from when they began to send would give up on an answer
that is under way, and the messages in it would stay hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from skidway.gateways.queues import service
from skidway.gateways.queues.errors import HeldUp, TooManyInFlight
from skidway.gateways.queues.names import key_of
from skidway.gateways.queues.types import Queue, Received
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.addresses import arn_of
from skidway.gateways.sqs.asking import Asked
from skidway.gateways.sqs.bounds import NAMES_MAX, RECEIVED_MAX, VISIBILITY_S_MAX, WAIT_S_MAX
from skidway.gateways.sqs.digests import md5_of_attributes
from skidway.gateways.sqs.errors import invalid_value, unknown_attribute
from skidway.gateways.sqs.outgoing import NOT_OF_THIS_TYPE, check_id
from skidway.gateways.sqs.queue_attributes import ATTRIBUTES
from skidway.gateways.sqs.records import Notes, attributes_of, body_of, notes_of
from skidway.gateways.sqs.shapes import Answer, AttributeValues, Message
from skidway.gateways.sqs.texts import shown
from skidway.records.dead_letter_headers import BROKER_NAMES, TOPIC
from skidway.records.queue_headers import GROUP_ID
from skidway.steps import Steps

WAIT_MS_MAX = 19_500
SYSTEM_ATTRIBUTES = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)
ALL_ATTRIBUTES = frozenset(("All", ".*", "*"))


def receive_message(asked: Asked, request: shapes.ReceiveMessage) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    count = 1 if request.max_number_of_messages is None else request.max_number_of_messages
    if not 1 <= count <= RECEIVED_MAX:
        reason = f"Must be between 1 and {RECEIVED_MAX}, if provided."
        raise invalid_value(count, "MaxNumberOfMessages", reason)
    wait_ms = _milliseconds("WaitTimeSeconds", request.wait_time_seconds, WAIT_S_MAX)
    if wait_ms is None:
        wait_ms = queue.settings.wait_ms
    visibility_ms = _milliseconds("VisibilityTimeout", request.visibility_timeout, VISIBILITY_S_MAX)
    attempt = _attempt(queue, request.receive_request_attempt_id)
    system = wanted_system(request.attribute_names or (), request.message_system_attribute_names or ())
    names = request.message_attribute_names or ()
    if len(names) > NAMES_MAX:
        raise invalid_value(len(names), "MessageAttributeNames", f"At most {NAMES_MAX} names.")
    wait_ms = min(wait_ms, WAIT_MS_MAX)
    try:
        found = yield from service.receive(asked.call, queue, count, wait_ms, visibility_ms, attempt=attempt)
    except HeldUp as why:
        # As Amazon: neither a long poll nor a FIFO queue says so.
        if isinstance(why, TooManyInFlight) and not wait_ms and not queue.settings.is_fifo:
            raise
        found = []
    return shapes.Received(messages=[_message(queue, each, system, names) for each in found])


def _milliseconds(parameter: str, given: int | None, seconds_max: int) -> int | None:
    if given is None:
        return None
    if not 0 <= given <= seconds_max:
        raise invalid_value(given, parameter, f"Must be >= 0 and <= {seconds_max}, if provided.")
    return given * 1_000


def _attempt(queue: Queue, given: str | None) -> str:
    if given is None:
        return ""
    if not queue.settings.is_fifo:
        raise invalid_value(given, "ReceiveRequestAttemptId", NOT_OF_THIS_TYPE)
    check_id("ReceiveRequestAttemptId", given)
    return given


def wanted_system(*given: Sequence[str]) -> Collection[str]:
    """Which attributes of the system are asked for. The older of two lists may also name attributes of queues, which no
    message has. Raises SqsError."""
    found: set[str] = set()
    for names in given:
        if len(names) > NAMES_MAX:
            raise invalid_value(len(names), "AttributeNames", f"At most {NAMES_MAX} names.")
        for name in names:
            if name.lower() == "all":
                return SYSTEM_ATTRIBUTES
            if name not in SYSTEM_ATTRIBUTES and name not in ATTRIBUTES:
                raise unknown_attribute(name)
            found.add(name)
    return found


def _message(queue: Queue, received: Received, system: Collection[str], names: Sequence[str]) -> Message:
    notes = notes_of(received.headers)
    body, checksum = body_of(received, notes)
    attributes = wanted_attributes(attributes_of(received.headers, notes), names) if names else {}
    known = _system_attributes(queue, received, notes) if system else {}
    return Message(
        message_id=received.message_id,
        receipt_handle=received.receipt,
        md5_of_body=checksum,
        body=body,
        attributes={name: known[name] for name in SYSTEM_ATTRIBUTES if name in system and name in known},
        md5_of_message_attributes=md5_of_attributes(attributes),
        message_attributes=attributes,
    )


def wanted_attributes(attributes: AttributeValues, names: Sequence[str]) -> AttributeValues:
    """A name, all of them, or all with a prefix (`a.*`)."""
    if not ALL_ATTRIBUTES.isdisjoint(names):
        return attributes
    exact = set(names)
    prefixes = tuple(name[:-1] for name in names if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in exact or name.startswith(prefixes)}


def _system_attributes(queue: Queue, received: Received, notes: Notes) -> dict[str, str]:
    found = {
        "SenderId": notes.sender or queue.key.account,
        "SentTimestamp": str(received.sent_ms),
        "ApproximateReceiveCount": str(received.delivery_count),
        "ApproximateFirstReceiveTimestamp": str(received.first_received_ms),
    }
    headers = dict(received.headers)
    group = headers.get(GROUP_ID)
    if queue.settings.is_fifo:
        found["SequenceNumber"] = received.sequence_number
        group = received.key
    group_id = None if group is None else shown(group)
    optional = {"MessageGroupId": group_id, "MessageDeduplicationId": notes.dedup, "AWSTraceHeader": notes.trace}
    found |= {name: value for name, value in optional.items() if value is not None}
    source = headers.get(BROKER_NAMES[TOPIC], headers.get(TOPIC))
    if source is not None:
        found["DeadLetterQueueSourceArn"] = arn_of(key_of(source.decode("utf-8", "replace")))
    return found
