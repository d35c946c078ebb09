"""Bodies of requests and answers about topics. What is not here is refused, or not answered.

A key or value is text, or with `…Base64` any bytes. In a request it may also be JSON of any other shape, which is kept
as compact JSON; null is no value, which deletes the key in a compacted topic.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from skidway.limits import INT32_MAX, INT64_MAX

Index = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Timestamp = Annotated[int, Meta(ge=0, le=INT64_MAX)]


class Header(Struct, rename="camel", forbid_unknown_fields=True):
    """One of a record. Names may repeat."""

    name: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class RecordToProduce(Struct, rename="camel", forbid_unknown_fields=True):
    key: Raw | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    headers: list[Header] | dict[str, str | None] | UnsetType = UNSET
    """A list, or names with text."""
    partition: Index | UnsetType = UNSET
    """By default the key decides, as in Kafka's clients."""
    timestamp: Timestamp | UnsetType = UNSET
    """Milliseconds since 1970; by default now."""


class ProduceBody(Struct, forbid_unknown_fields=True):
    records: list[RecordToProduce]


class RawBody(Struct, forbid_unknown_fields=True):
    """As `ProduceBody`, for one that is read piece by piece."""

    records: Raw


class Refusal(Struct):
    code: str
    detail: str
    retryable: bool


class Produced(Struct):
    """Where a record is, or why it was not written."""

    partition: int
    offset: int | UnsetType = UNSET
    error: Refusal | UnsetType = UNSET


class ProduceAnswer(Struct):
    offsets: list[Produced]
    """One for each record, in their order."""


class Record(Struct, rename="camel"):
    offset: int
    timestamp: int
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET
    headers: list[Header] | UnsetType = UNSET


class RecordsAnswer(Struct, rename="camel"):
    topic: str
    partition: int
    records: list[Record]
    next_offset: int
    """What to ask for next."""
    high_watermark: int
    """The end of what is committed."""


class Partition(Struct, rename="camel"):
    partition: int
    leader: int
    """-1 if there is none now."""
    replicas: list[int]
    in_sync: list[int]


class Topic(Struct, rename="camel"):
    name: str
    id: str
    internal: bool
    partitions: list[Partition]


class TopicName(Struct):
    name: str
    partitions: int
    internal: bool


class TopicList(Struct):
    topics: list[TopicName]
