"""What a member of a share group has of a partition, and what it says of it: as it tells the laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from skidway.shares.states import Verb

Place = tuple[str, int]
"""Topic and partition."""
NEVER_US = 1 << 62


def key_of(value: bytes, count: int) -> bytes:
    """The key of a record with this value, where there are so many keys."""
    return str(crc32(value) % count).encode()


@dataclass(slots=True, eq=False)
class Hold:
    """Offsets that were delivered to a member, all for the same time."""

    member: str
    group: str
    place: Place
    topic_id: bytes
    first: int
    end: int
    count: int
    node_id: int
    sent_us: int
    """When the fetch went out that brought it."""
    received_us: int
    lock_us: int
    """How long it is locked, as the leader says."""
    reign: tuple[int, int] | None = None
    """The leader's life and epoch, if that was the same one when the fetch went out and when its answer came."""
    session: object = None
    """The leader's, by which it came: when that is over, nothing is held by it."""
    until_us: int = 0
    """So long it is certainly held, if nothing happens."""
    again: int = 0
    """The count with which the member got something of it once more."""
    over: bool = False
    """The member has spoken of it, or is gone."""


@dataclass(slots=True, eq=False)
class Spoken:
    """What a request says of one partition."""

    member: str
    group: str
    place: Place
    topic_id: bytes
    node_id: int
    words: list[tuple[int, int, list[Verb]]]
    """First offset, end, and one word for all or one for each."""
    holds: list[Hold] = field(default_factory=list)
    """Which it is about."""
    foreign: list[int] = field(default_factory=list)
    """Offsets in it that are not the member's."""
    twice: bool = False
    """An offset is named twice."""
    sent_us: int = 0
    reign: tuple[int, int] | None = None
    sure: bool = False
    """Whether the member certainly had all of it then."""
    stored_epoch: int = -1
    """The newest leader epoch that the store knew when it was sent."""

    @property
    def is_right(self) -> bool:
        return not self.foreign and not self.twice

    def verbs(self) -> list[tuple[int, Verb]]:
        """By offset."""
        found = []
        for first, end, verbs in self.words:
            for offset in range(first, end):
                found.append((offset, verbs[0] if len(verbs) == 1 else verbs[offset - first]))
        return found


class ShareTold(Protocol):
    """What a member tells the laws."""

    def sending(self, group: str, place: Place, topic_id: bytes, node_id: int) -> tuple[int, int] | None:
        """A fetch goes out. Who leads there."""
        ...

    def delivered(self, hold: Hold, values: dict[int, bytes], reign: tuple[int, int] | None) -> None: ...

    def speaking(self, spoken: Spoken) -> None: ...

    def may_be_past(self, spoken: Spoken) -> bool:
        """Whether it may name something that this leader has not delivered: another one did, or nobody."""
        ...

    def answered(self, spoken: Spoken, code: int | None) -> None:
        """None: nobody answered."""
        ...

    def session_refused(self, who: str, node_id: int, what: str) -> None:
        """Though the member did nothing wrong, and its connection was never broken."""
        ...

    def wrong_epoch_taken(self, who: str, node_id: int, what: str) -> None: ...

    def stranger(self, group: str, place: Place, member: str) -> tuple[int, int] | None:
        """Offsets that somebody else has now."""
        ...
