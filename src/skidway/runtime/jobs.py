"""Work that a node gives to a thread: `run` on a worker, then `done` on the event loop.

A node hands out its jobs at the end of a turn (`Node.end_turn`). The shell runs each on a thread of its lane and then
calls `done` with the OSError that `run` ended with, if any. Jobs of one lane may end in any order.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol


class Lane(Enum):
    """Which threads run a job. A lane never waits for another one."""

    SYNC = "sync"
    """Somebody waits for it: an acknowledgement, an answer."""
    MAINTENANCE = "maintenance"
    """Nobody waits for it: checkpoints, removals, checks. It may take seconds."""
    COMPACTION = "compaction"
    """It may take minutes."""
    REQUEST = "request"
    """Unpacking and packing for a client's request."""


class Ticket(Protocol):
    """What is to be done, without knowing who wants it."""

    def run(self) -> None: ...


class Job:
    __slots__ = ("_end", "lane", "ticket")

    def __init__(self, lane: Lane, ticket: Ticket, end: Callable[[Any, OSError | None, int], None]) -> None:
        """`end` gets the ticket, the error and the monotonic time in milliseconds, on the event loop."""
        self.lane = lane
        self.ticket = ticket
        self._end = end

    def __repr__(self) -> str:
        return f"Job({self.lane.value}, {type(self.ticket).__name__})"

    def run(self) -> None:
        self.ticket.run()

    def done(self, error: OSError | None, now_ms: int) -> None:
        self._end(self.ticket, error, now_ms)
