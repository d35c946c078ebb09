"""What doors and queues tell each other."""

from __future__ import annotations

import msgspec

from skidway.gateways.queues.names import QueueKey
from skidway.records.record import Headers

STANDARD, FIFO = "standard", "fifo"


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Each is a setting of the topic, `queue.…` but for the retention."""

    type: str = STANDARD
    visibility_ms: int = 30_000
    delay_ms: int = 0
    wait_ms: int = 0
    """How long a receive waits that does not say."""
    message_bytes_max: int = 1_048_576
    retention_ms: int = 4 * 86_400_000
    deliveries_max: int = 0
    """After so many a message is dead; 0: never."""
    dead_letters: str = ""
    """The topic for dead messages; empty: they are dropped."""
    content_deduplication: bool = False
    deduplication_scope: str = "queue"
    """`queue` or `messageGroup`."""
    attributes: dict[str, str] = {}
    """What a door keeps and shows, and nobody obeys."""

    @property
    def is_fifo(self) -> bool:
        return self.type == FIFO


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """As it was when it was looked for."""

    key: QueueKey
    topic: str
    topic_id: bytes
    partitions: int
    settings: QueueSettings
    tags: dict[str, str]
    created_ms: int
    modified_ms: int
    """Of its settings."""


class MessageToSend(msgspec.Struct, kw_only=True):
    body: bytes | None
    key: bytes | None = None
    """Decides the partition. In a FIFO queue it is the message's group."""
    headers: Headers = ()
    delay_ms: int | None = None
    """None: the queue's."""
    deduplication_id: str | None = None
    """FIFO only."""
    partition: int | None = None
    size: int | None = None
    """What counts of it against the queue's largest message; None: all of it."""


class Sent(msgspec.Struct, kw_only=True):
    message_id: str
    partition: int
    offset: int
    sent_ms: int
    """When the queue got it; of a duplicate, when it was sent again."""
    duplicate: bool = False

    @property
    def sequence_number(self) -> str:
        return f"{self.offset:020}"


class Received(msgspec.Struct, kw_only=True):
    message_id: str
    receipt: str
    body: bytes | None
    key: bytes | None
    headers: Headers
    partition: int
    offset: int
    delivery_count: int
    sent_ms: int
    first_received_ms: int
    """Approximate: a new leader knows no older one than its own."""

    @property
    def sequence_number(self) -> str:
        return f"{self.offset:020}"


class Accept(msgspec.Struct, frozen=True):
    """It is done: delete it."""


class Release(msgspec.Struct, frozen=True):
    """Deliver it again, not before the delay is over."""

    delay_ms: int = 0


class Reject(msgspec.Struct, frozen=True):
    """Do not deliver it again: to the dead letters with it, if the queue has any."""

    reason: str = ""


class Extend(msgspec.Struct, frozen=True):
    """So long from now on nobody else gets it; 0: anybody at once."""

    visibility_ms: int


Action = Accept | Release | Reject | Extend


class Ack(msgspec.Struct, kw_only=True):
    """About one message: by the receipt of a delivery, or by its id, whichever delivery there is."""

    action: Action
    receipt: str = ""
    message_id: str = ""


class Counters(msgspec.Struct, kw_only=True):
    visible: int = 0
    blocked: int = 0
    """Of those: they wait for an earlier message of their group."""
    in_flight: int = 0
    delayed: int = 0
    dead: int = 0
    """They wait until their dead letters are written."""
    letter_trouble: str = ""
    """Why those cannot be written; empty: they can."""
    held_up: str = ""
    """Why a receive finds nothing although messages wait; empty: it does not."""


class Peeked(msgspec.Struct, kw_only=True):
    message_id: str
    body: bytes | None
    key: bytes | None
    headers: Headers
    partition: int
    offset: int
    state: str
    """`visible`, `inFlight`, `delayed` or `dead`."""
    delivery_count: int
    sent_ms: int
