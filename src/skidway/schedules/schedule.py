"""Schedules as their coordinator knows them. What a message consists of stays in the log, only its place is kept."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from skidway.records.record import Headers

NO_KEY = -1
"""The hash of a message without a key: it may go to any partition."""
LAST = -1
"""When a recurring schedule is due next that was cancelled while its message is on its way: never."""
RECORD_BYTES = 100
"""What a record takes beside key, value and headers, and more."""
HEADER_BYTES = 10


class ScheduledMessage(Struct, frozen=True):
    key: bytes | None
    value: bytes | None
    headers: Headers
    key_hash: int = NO_KEY
    """By which clients choose the partition of a key."""

    @property
    def size(self) -> int:
        headers = sum(len(name) * 4 + len(value or b"") + HEADER_BYTES for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + RECORD_BYTES


class Definition(Struct, frozen=True):
    """What somebody asked for. It never changes."""

    created_ms: int
    due_ms: int
    """The first time."""
    message: ScheduledMessage
    cron: str = ""
    """Empty: it is due once."""
    zone: str = ""

    @property
    def digest(self) -> bytes:
        """Two that ask for the same have the same."""
        # What is due again and again was asked for without a time.
        due_ms = 0 if self.cron else self.due_ms
        message = self.message
        told = repr((due_ms, self.cron, self.zone, message.key, message.value, tuple(message.headers)))
        return blake2b(told.encode("utf-8", "surrogateescape"), digest_size=16).digest()


class Schedule(Struct):
    """What is kept in memory of one."""

    id: str
    due_ms: int
    cron: str
    zone: str
    created_ms: int
    size: int
    key_hash: int
    digest: bytes
    offset: int
    """Of its definition in the log."""
    planned: bool = False
    """It is being delivered."""
    waits_ms: int = 0
    """Until when, where that is later than it is due: its queue did not take it."""

    @property
    def at_ms(self) -> int:
        return max(self.due_ms, self.waits_ms)


class Planned(Struct, frozen=True):
    id: str
    due_ms: int


class Plan(Struct, frozen=True):
    """Messages that are delivered next, as one batch with a name. Sent twice, the log takes it once."""

    producer_id: int
    sequence: int
    """Of the first message."""
    partition: int
    messages: tuple[Planned, ...]
