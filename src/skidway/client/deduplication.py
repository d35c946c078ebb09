"""Processing a message at most once per id, within a window of time, whoever delivers it again.

    deduplicator = Deduplicator(SqliteMarks("orders.db"), window_ms=86_400_000)
    done = deduplicator.once(message_id(message), lambda connection: connection.execute("INSERT …"))

What it is worth depends on where the marks are:

- SQLite and PostgreSQL (`SqliteMarks`, `PostgresMarks`): the mark and what `work` writes through the connection it is
  given are one transaction. Both are there or neither is: with a consumer that commits afterwards, every message has
  its effect exactly once. `work` must not end the transaction itself.
- Redis (`RedisMarks`): the mark is apart from whatever `work` does. See there what a crash in between means.

Two processes with the same id at the same time: one works, the other waits for it (SQLite, PostgreSQL), or is told
(`InProgress`, or False: `RedisMarks`). A `work` that raises leaves no mark: the message can be tried again.
"""

import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from skidway.blocking_client.errors import ClientError

DAY_MS = 86_400_000
MESSAGE_ID_HEADER = "message-id"

Handle = TypeVar("Handle")
Handle_co = TypeVar("Handle_co", covariant=True)


class InProgress(ClientError):
    """Somebody else works on this id right now and has not ended: neither done nor free. Try again later."""


class Marks(Protocol[Handle_co]):
    """Where it is written which ids are done."""

    def once(self, scope: str, identity: str, window_ms: int, now_ms: int, work: Callable[[Handle_co], object]) -> bool:
        """Call `work` with what it may write through and mark the id; or do nothing and answer False if it is marked.

        A mark counts for `window_ms`. If `work` raises, there is no mark and the error goes on."""


class Deduplicator(Generic[Handle]):
    """`scope` keeps apart those who share marks: usually the name of the consumer group.

    One object belongs to one thread, as its connection does. `clock`: wall time in ms (Redis uses its own).
    """

    def __init__(
        self,
        marks: Marks[Handle],
        *,
        window_ms: int = DAY_MS,
        scope: str = "",
        clock: Callable[[], int] | None = None,
    ) -> None:
        if window_ms < 1:
            raise ValueError("the window must be above zero")
        self.window_ms = window_ms
        self.scope = scope
        self.duplicates = 0
        self._marks = marks
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)

    def once(self, identity: str, work: Callable[[Handle], object]) -> bool:
        """True if this call processed the message, False if it was processed before."""
        fresh = self._marks.once(self.scope, identity, self.window_ms, self._clock(), work)
        self.duplicates += not fresh
        return fresh


def message_id(message: Any, header: str = MESSAGE_ID_HEADER) -> str:
    """The id a producer gave a confluent-kafka message in a header, else its place: topic/partition/offset.

    A place tells redelivery of one record; only an id tells that two records are the same message sent twice.
    """
    for name, value in message.headers() or []:
        if name == header and value:
            return str(value.decode("utf-8", "backslashreplace"))
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
