"""What one turn of the event loop leaves to be done at its end.

Partitions note here that they want a sync, that their high watermark moved or that followers have more to fetch; others
ask to be called. The shell calls the node once at the end of the turn, so one sync covers everything that was appended
in it, and a long poll is answered once for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from skidway.limits import INT64_MAX
from skidway.log.durability.sync import SyncTicket
from skidway.log.log import Log

NEVER = ENOUGH = INT64_MAX


class Synced(Protocol):
    """A partition, or whatever else has a log that is synced."""

    log: Log

    def begin_sync(self) -> SyncTicket | None: ...

    def begin_checkpoint(self) -> SyncTicket | None: ...

    def finish_sync(self, ticket: SyncTicket, *, housekept: bool = True) -> None: ...

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """It was not done, and is to be begun again."""
        ...


Moved = TypeVar("Moved", bound=Synced)
"""Partitions, which are made of what is here."""


class TurnNotes(Generic[Moved]):
    __slots__ = ("calls", "grown", "moved", "on_work", "unstable", "unsynced")

    def __init__(self, on_work: Callable[[], None]) -> None:
        """`on_work` is called when a turn has something to be done at its end."""
        # Dicts as ordered sets: the order of a real set would differ from run to run.
        self.unsynced: dict[Synced, None] = {}
        self.moved: dict[Moved, int] = {}
        """With the bytes that can be read in addition since the turn began."""
        self.unstable: dict[Moved, int] = {}
        """Where transactions hold the last stable offset back: 0, or `ENOUGH` if it has moved all the same."""
        self.grown: dict[Moved, int] = {}
        """With the bytes appended, committed or not: what followers wait for."""
        self.calls: dict[Callable[[int], None], None] = {}
        self.on_work = on_work

    def call_at_end(self, act: Callable[[int], None]) -> None:
        """Once, with the time, however often it was asked for."""
        if not self.calls:
            self.on_work()
        self.calls[act] = None

    def wants_sync(self, synced: Synced) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.unsynced[synced] = None

    def advance(self, partition: Moved, high_watermark: int) -> None:
        """The watermark of its log rises."""
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        log = partition.log
        if log.producers.transactions.first_unstable < NEVER:
            stable = log.last_stable_offset
            added_bytes = log.advance_high_watermark(high_watermark)
            has_moved = partition in self.moved and self.unstable.get(partition) != 0
            self.unstable[partition] = ENOUGH if has_moved or log.last_stable_offset > stable else 0
        else:
            added_bytes = log.advance_high_watermark(high_watermark)
        self.moved[partition] = self.moved.get(partition, 0) + added_bytes

    def has_grown(self, partition: Moved, added_bytes: int) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.grown[partition] = self.grown.get(partition, 0) + added_bytes

    def take_calls(self) -> list[Callable[[int], None]]:
        calls = list(self.calls)
        self.calls.clear()
        return calls

    def take_unsynced(self) -> list[Synced]:
        unsynced = list(self.unsynced)
        self.unsynced.clear()
        return unsynced

    def take_moved(self) -> list[tuple[Moved, int, int]]:
        """Partitions, how many more bytes are committed, and how many more are stable. How many those are is not known
        where transactions end: enough for everybody."""
        if self.unstable:
            moved = [(each, added, self.unstable.get(each, added)) for each, added in self.moved.items()]
            self.unstable.clear()
        else:
            moved = [(each, added, added) for each, added in self.moved.items()]
        self.moved.clear()
        return moved

    def take_grown(self) -> list[tuple[Moved, int]]:
        grown = list(self.grown.items())
        self.grown.clear()
        return grown
