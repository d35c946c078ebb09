"""A message that somebody sends, checked: its body, its attributes, its size and what goes with it.

The size of a message is that of its body in UTF-8 and of the names, types and values of its attributes; what the system
adds is free. A queue's MaximumMessageSize bounds one message, `MESSAGE_BYTES_MAX` all of a request.
"""

from __future__ import annotations

import re

import msgspec

from skidway.gateways.sqs.bounds import (
    ATTRIBUTE_NAME_LENGTH_MAX,
    ATTRIBUTES_PER_MESSAGE_MAX,
    DELAY_S_MAX,
    ID,
)
from skidway.gateways.sqs.digests import md5_of_attributes, md5_of_body
from skidway.gateways.sqs.errors import (
    SqsError,
    invalid_contents,
    invalid_parameter,
    invalid_value,
    missing_parameter,
)
from skidway.gateways.sqs.shapes import AttributeValue, AttributeValues, ToSend
from skidway.gateways.sqs.texts import is_allowed

TRACE_HEADER = "AWSTraceHeader"
_NAME = re.compile(r"[\w.-]+")
_RESERVED = re.compile(r"(?:aws|amazon)\.", re.IGNORECASE)
_TYPE = re.compile(r"(String|Number|Binary)(?:\.[^\x00-\x1f]+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,200}(?:\.[0-9]{0,200})?|\.[0-9]{1,200})(?:[eE][+-]?[0-9]{1,4})?")
NOT_OF_THIS_TYPE = "The request include parameter that is not valid for this queue type."


class Outgoing(msgspec.Struct):
    body: bytes
    attributes: AttributeValues
    size: int
    """Of the body and the attributes."""
    body_md5: str
    attributes_md5: str | None
    trace: str | None
    """The header of X-Ray, which the system carries along."""
    system_md5: str | None
    delay_s: int | None
    group_id: str | None
    deduplication_id: str | None


def check_content(given: ToSend, bytes_max: int) -> Outgoing:
    """Everything that needs nothing of the queue but its limit. Raises SqsError."""
    if not given.message_body:
        raise missing_parameter("MessageBody")
    body = given.message_body.encode()
    attributes, system = given.message_attributes or {}, given.message_system_attributes or {}
    size = len(body) + (size_of_attributes(attributes) if attributes else 0)
    if size > bytes_max:
        raise invalid_parameter(
            f"One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes."
        )
    if not is_allowed(body):
        raise invalid_contents()
    if attributes:
        check_attributes(attributes)
    trace = _trace(system) if system else None
    if given.delay_seconds is not None and not 0 <= given.delay_seconds <= DELAY_S_MAX:
        reason = f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}."
        raise invalid_value(given.delay_seconds, "DelaySeconds", reason)
    return Outgoing(
        body,
        attributes,
        size,
        md5_of_body(body),
        md5_of_attributes(attributes) if attributes else None,
        trace,
        md5_of_attributes(system) if system else None,
        given.delay_seconds,
        given.message_group_id,
        given.message_deduplication_id,
    )


def size_of(given: ToSend) -> int:
    return len((given.message_body or "").encode()) + size_of_attributes(given.message_attributes or {})


def size_of_attributes(attributes: AttributeValues) -> int:
    return sum(
        len(name.encode())
        + len((value.data_type or "").encode())
        + len((value.string_value or "").encode())
        + len(value.binary_value or b"")
        for name, value in attributes.items()
    )


# --- what depends on the type of the queue ---


def check_for_standard(given: ToSend) -> None:
    """Raises SqsError."""
    if given.message_deduplication_id is not None:
        raise invalid_value(given.message_deduplication_id, "MessageDeduplicationId", NOT_OF_THIS_TYPE)
    if given.message_group_id is not None:
        check_id("MessageGroupId", given.message_group_id)


def check_for_fifo(given: ToSend, *, deduplicates_content: bool, in_batch: bool = False) -> None:
    """Raises SqsError. A batch has other words for what is missing."""
    if given.message_group_id is None:
        error = missing_parameter("MessageGroupId")
        raise invalid_parameter(error.message) if in_batch else error
    check_id("MessageGroupId", given.message_group_id)
    if given.message_deduplication_id is not None:
        check_id("MessageDeduplicationId", given.message_deduplication_id)
    elif not deduplicates_content:
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly"
        )


def check_delay_for_fifo(given: ToSend) -> None:
    """The queue's own delay applies. Raises SqsError."""
    if given.delay_seconds:
        raise invalid_value(given.delay_seconds, "DelaySeconds", NOT_OF_THIS_TYPE)


def check_id(parameter: str, value: str) -> None:
    """Raises SqsError."""
    if not ID.fullmatch(value):
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise invalid_value(value, parameter, reason)


# --- attributes ---


def check_attributes(attributes: AttributeValues) -> None:
    """Raises SqsError."""
    if len(attributes) > ATTRIBUTES_PER_MESSAGE_MAX:
        raise invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_PER_MESSAGE_MAX}]."
        )
    for name, value in attributes.items():
        check_attribute_name(name)
        check_attribute_value(name, value)


def check_attribute_name(name: str) -> None:
    """Raises SqsError."""
    if not name or len(name) > ATTRIBUTE_NAME_LENGTH_MAX:
        raise invalid_parameter(
            f"Length of message attribute name must be from 1 to {ATTRIBUTE_NAME_LENGTH_MAX} characters."
        )
    if not _NAME.fullmatch(name):
        raise _bad_name(name, "It can contain letters, digits, underscores, hyphens and periods.")
    if _RESERVED.match(name):
        raise _bad_name(name, "It can't start with the reserved prefixes AWS. or Amazon.")
    if name.startswith(".") or name.endswith(".") or ".." in name:
        raise _bad_name(name, "It can't start or end with a period, nor have periods in succession.")


def check_attribute_value(name: str, value: AttributeValue) -> None:
    """Raises SqsError."""
    if not value.data_type:
        raise invalid_parameter(f"The message attribute '{name}' must contain non-empty message attribute type.")
    if value.string_list_values or value.binary_list_values:
        raise invalid_parameter(f"Message attribute list values in SendMessage operation are not supported: '{name}'.")
    kind = _TYPE.fullmatch(value.data_type)
    if kind is None or len(value.data_type) > ATTRIBUTE_NAME_LENGTH_MAX:
        raise invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported type "
            "prefixes: Binary, Number, String."
        )
    if kind[1] == "Binary":
        if not value.binary_value or value.string_value is not None:
            raise _empty(name, kind[1])
        return
    if not value.string_value or value.binary_value is not None:
        raise _empty(name, kind[1])
    if not is_allowed(value.string_value.encode()):
        raise invalid_contents()
    if kind[1] == "Number" and not _NUMBER.fullmatch(value.string_value):
        raise invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _trace(attributes: AttributeValues) -> str | None:
    for name, value in attributes.items():
        if name != TRACE_HEADER:
            raise invalid_parameter(
                f"Message system attribute name '{name[:ATTRIBUTE_NAME_LENGTH_MAX]}' is invalid. Valid names are: "
                f"{TRACE_HEADER}."
            )
        if value.data_type != "String" or not value.string_value:
            raise invalid_parameter(f"The message system attribute '{name}' must be a String that is not empty.")
        if not is_allowed(value.string_value.encode()):
            raise invalid_contents()
        return value.string_value
    return None


def _bad_name(name: str, reason: str) -> SqsError:
    return invalid_parameter(f"Message (user) attribute name '{name}' is invalid. {reason}")


def _empty(name: str, kind: str) -> SqsError:
    return invalid_parameter(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")
