"""What clients and brokers say to each other over a WebSocket: JSON in text messages, told apart by `type`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

CREDIT_MAX = 10_000
ID_CHARS_MAX = 64

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
Credit = Annotated[int, Meta(ge=0, le=CREDIT_MAX)]


class Subscribe(Struct, tag_field="type", tag="subscribe", forbid_unknown_fields=True):
    """Records of a topic, as they come, never more than the credit."""

    id: Id
    """Chosen by the client: later messages about this subscription have it."""
    topic: str
    credit: Credit
    partition: str | UnsetType = UNSET
    offset: str | UnsetType = UNSET
    timestamp: int | UnsetType = UNSET
    """These three as in the query of a stream."""


class MoreCredit(Struct, tag_field="type", tag="credit", forbid_unknown_fields=True):
    """So many records more may be sent."""

    id: Id
    credit: Credit


class Unsubscribe(Struct, tag_field="type", tag="unsubscribe", forbid_unknown_fields=True):
    id: Id


Command = Subscribe | MoreCredit | Unsubscribe


class Subscribed(Struct, tag_field="type", tag="subscribed"):
    id: str
    position: str
    """What comes first in each partition, as `0:17,1:4`."""


class Unsubscribed(Struct, tag_field="type", tag="unsubscribed"):
    """Nothing of this subscription follows."""

    id: str


class Failure(Struct, tag_field="type", tag="error"):
    """A command was refused, or a subscription has ended."""

    code: str
    detail: str
    retryable: bool
    id: str | UnsetType = UNSET
