"""Share sessions (KIP-932): what one member of a group fetches from this broker, named once.

A session belongs to a member of a group and to the connection that began it. Every request that goes on with it names
the next epoch, fetches and acknowledgements alike, whatever becomes of its partitions. Requests add partitions, also
those that they name only to acknowledge something, and forget some. The table is bounded. When the last session of a
group is over, this broker may forget the group.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from skidway.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from skidway.limits import INT32_MAX

INITIAL_EPOCH = 0
FINAL_EPOCH = -1

SessionKey = tuple[str, str]
"""Group and member."""
Place = tuple[bytes, int]
"""Topic id and partition."""


class ShareSession(Struct, eq=False):
    key: SessionKey
    connection: object
    """Its session ends with it."""
    epoch: int = 1
    """Of the next request."""
    places: dict[Place, bool] = field(default_factory=dict)
    """In the order in which they were named; whether a reply has named them."""
    ended: bool = False

    @property
    def group(self) -> str:
        return self.key[0]

    @property
    def member(self) -> str:
        return self.key[1]

    def rotated(self, epoch: int) -> list[Place]:
        """All places, beginning with another one in each request: none is always the last."""
        places = list(self.places)
        first = epoch % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessions:
    __slots__ = ("_of_group", "open", "places")

    def __init__(self) -> None:
        self.open: dict[SessionKey, ShareSession] = {}
        self._of_group: dict[str, int] = {}
        self.places = 0
        """Of all sessions together."""

    def begin(self, key: SessionKey, connection: object, sessions_max: int) -> ShareSession:
        """A new one, in the place of the one that the member had."""
        before = self.open.get(key)
        if before is None and len(self.open) >= sessions_max:
            raise ShareSessionLimitReached(f"{len(self.open)} share sessions are open on this broker")
        session = ShareSession(key, connection)
        if before is not None:
            self._drop(before)
        self.open[key] = session
        self._of_group[session.group] = self._of_group.get(session.group, 0) + 1
        return session

    def go_on(self, key: SessionKey, epoch: int, connection: object) -> ShareSession:
        """The member's session, if this is its next request. It belongs to this connection from now on."""
        session = self.open.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{key[1]} has no share session here")
        if epoch == FINAL_EPOCH:
            return session
        if epoch == INITIAL_EPOCH or epoch != session.epoch:
            raise InvalidShareSessionEpoch(f"the epoch is {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        session.connection = connection
        return session

    def add(self, session: ShareSession, places: Iterable[Place]) -> None:
        for place in places:
            if place not in session.places:
                session.places[place] = False
                self.places += 1

    def forget(self, session: ShareSession, places: Iterable[Place]) -> None:
        for place in places:
            if session.places.pop(place, None) is not None:
                self.places -= 1

    def end(self, session: ShareSession) -> bool:
        """Whether its group has no other session here."""
        if self.open.get(session.key) is not session:
            return False
        self._drop(session)
        return session.group not in self._of_group

    def on_disconnected(self, connection: object) -> list[ShareSession]:
        """Those that end with the connection. What a member began anew by another one goes on."""
        return [session for session in self.open.values() if session.connection is connection]

    def of_group(self, group: str) -> int:
        return self._of_group.get(group, 0)

    def _drop(self, session: ShareSession) -> None:
        session.ended = True
        del self.open[session.key]
        self.places -= len(session.places)
        left = self._of_group[session.group] - 1
        if left:
            self._of_group[session.group] = left
        else:
            del self._of_group[session.group]
