"""Bodies of requests and answers about queues. What is not here is refused, or not answered.

The body of a message is text, or any other JSON, which is kept compact and comes back as JSON; with `bodyBase64` it is
any bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from skidway.gateways.http.topics.shapes import Refusal

Seconds = Annotated[float, Meta(ge=0, le=43_200)]
Name = Annotated[str, Meta(min_length=1, max_length=249)]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Time = Annotated[int, Meta(ge=0, le=2**53)]
Milliseconds = Annotated[int, Meta(ge=0, le=43_200_000)]
Attributes = dict[str, str | None]


class Message(Struct, rename="camel", forbid_unknown_fields=True):
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    """Messages with the same key are in one partition."""
    attributes: Attributes | UnsetType = UNSET
    delay_seconds: Seconds | UnsetType = UNSET
    """So long nobody gets it; if it is not given, as long as the queue says."""
    deliver_at: Time | UnsetType = UNSET
    """Nobody gets it earlier: milliseconds since 1970, at most 12 hours from now."""
    group_id: Id | UnsetType = UNSET
    """FIFO queues: messages of a group come in order. It is the key."""
    dedup_id: Id | UnsetType = UNSET
    """FIFO queues: within five minutes a message with the same id is not sent again."""


class SendBody(Struct, rename="camel", forbid_unknown_fields=True):
    """One message, or up to 100 of them in `messages`."""

    queue: Name
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    attributes: Attributes | UnsetType = UNSET
    delay_seconds: Seconds | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    group_id: Id | UnsetType = UNSET
    dedup_id: Id | UnsetType = UNSET
    messages: list[Message] | UnsetType = UNSET


class SentMessage(Struct, rename="camel"):
    """Its id, or why it was not sent."""

    message_id: str | UnsetType = UNSET
    sequence_number: str | UnsetType = UNSET
    """FIFO queues."""
    duplicate: bool | UnsetType = UNSET
    """FIFO queues: whether it had been sent before."""
    error: Refusal | UnsetType = UNSET


class SendAnswer(Struct, rename="camel"):
    """`messageId` for one message, `messages` for several, in their order."""

    message_id: str | UnsetType = UNSET
    sequence_number: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    messages: list[SentMessage] | UnsetType = UNSET


class ReceivedMessage(Struct, rename="camel"):
    message_id: str
    receipt: str | UnsetType = UNSET
    body: Any = UNSET
    """Text, or JSON if it was sent as such."""
    body_base64: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    attributes: dict[str, str | None] | UnsetType = UNSET
    attributes_base64: dict[str, str] | UnsetType = UNSET
    """Those whose values are no text."""
    delivery_count: int = 0
    sent_at: int = 0
    """Milliseconds since 1970."""
    state: str | UnsetType = UNSET
    """Of a message that was looked at: `visible`, `inFlight`, `delayed`, or `dead` until its letter is written."""


class ReceiveAnswer(Struct):
    messages: list[ReceivedMessage]


class ReceiveBody(Struct, forbid_unknown_fields=True):
    max: Annotated[int, Meta(ge=1, le=100)] = 1
    wait: Annotated[int, Meta(ge=0, le=30_000)] | None = None
    """Milliseconds."""
    visibility: Milliseconds | None = None


class OneAck(Struct, rename="camel", forbid_unknown_fields=True):
    receipt: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    action: Literal["accept", "release", "reject", "extend"] = "accept"
    delay_seconds: Seconds = 0
    """Release: before that nobody gets it. Extend: so long nobody else gets it."""
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class AckBody(Struct, rename="camel", forbid_unknown_fields=True):
    """About one message, or up to 100 of them in `acks`."""

    queue: Name | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    action: Literal["accept", "release", "reject", "extend"] = "accept"
    delay_seconds: Seconds = 0
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    acks: list[OneAck] | UnsetType = UNSET


class AckResult(Struct):
    done: bool
    error: Refusal | UnsetType = UNSET


class AckAnswer(Struct):
    """`done` for one message, `acks` for several, in their order."""

    done: bool | UnsetType = UNSET
    acks: list[AckResult] | UnsetType = UNSET


class SettingsBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Of a queue that is made, or is to be like this."""

    type: Literal["standard", "fifo"] | UnsetType = UNSET
    visibility_ms: Milliseconds | UnsetType = UNSET
    delay_ms: Annotated[int, Meta(ge=0, le=900_000)] | UnsetType = UNSET
    """So long nobody gets a new message that does not say."""
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] | UnsetType = UNSET
    max_message_bytes: Annotated[int, Meta(ge=1_024, le=1_048_576)] | UnsetType = UNSET
    retention_ms: Annotated[int, Meta(ge=60_000, le=1_209_600_000)] | UnsetType = UNSET
    max_deliveries: Annotated[int, Meta(ge=0, le=1_000)] | UnsetType = UNSET
    """0: without end."""
    dead_letters: Annotated[str, Meta(max_length=249)] | UnsetType = UNSET
    """The queue for messages that were rejected, or delivered so often; empty: they are dropped."""
    content_deduplication: bool | UnsetType = UNSET
    """FIFO queues: the SHA-256 of the body is the id of a message that has none."""
    deduplication_scope: Literal["queue", "messageGroup"] | UnsetType = UNSET
    """FIFO queues: where an id is sent once. `queue` is for one partition."""
    tags: dict[str, str] | UnsetType = UNSET
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET


class QueueAnswer(Struct, rename="camel"):
    name: str
    topic: str
    type: str
    partitions: int
    visibility_ms: int
    delay_ms: int
    wait_ms: int
    max_message_bytes: int
    retention_ms: int
    max_deliveries: int
    dead_letters: str
    content_deduplication: bool
    deduplication_scope: str
    tags: dict[str, str]
    created_at: int
    modified_at: int


class QueueList(Struct):
    queues: list[QueueAnswer]


class Stats(Struct, rename="camel"):
    visible: int
    in_flight: int
    delayed: int
    blocked: int | UnsetType = UNSET
    """FIFO queues: those of the visible that wait for an earlier message of their group, if there are any."""
    dead: int | UnsetType = UNSET
    """Those that wait until their dead letters are written, if there are any."""
    letter_trouble: str | UnsetType = UNSET
    """Why those cannot be written."""
    held_up: str | UnsetType = UNSET
    """Why a receive finds nothing although messages wait."""


YearInSeconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]


class ScheduleBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A message, and when: `deliverAt`, `delaySeconds` or `cron`."""

    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    attributes: Attributes | UnsetType = UNSET
    id: Id | UnsetType = UNSET
    """By which it is cancelled. If it is not given, one is made up."""
    deliver_at: Time | UnsetType = UNSET
    """Milliseconds since 1970, at most 366 days from now."""
    delay_seconds: YearInSeconds | UnsetType = UNSET
    cron: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET
    """Again and again: minute, hour, day of the month, month, day of the week."""
    time_zone: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """Of the cron expression, such as `Europe/Berlin`; UTC if it is not given."""


class CreatedSchedule(Struct, rename="camel"):
    id: str
    due_at: int
    """Milliseconds since 1970; of a recurring one the next time."""
    existed: bool = False
    """The very same was there already."""


class Schedule(Struct, rename="camel"):
    id: str
    due_at: int
    created_at: int
    size: int
    """Bytes that its message takes, about."""
    cron: str | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET


class ScheduleList(Struct, rename="camel"):
    schedules: list[Schedule]


class CancelledSchedule(Struct, rename="camel"):
    done: bool = True
    on_its_way: bool = False
    """A message of the recurring schedule was being delivered: it is the last one."""


class Done(Struct):
    done: bool = True
