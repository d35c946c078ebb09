"""Mistakes about what is stored of share groups: share coordinators, and how groups have states initialised."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.groups.share import change
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.shares.coordinator import batches, machine, state
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.machine import Draft, ShareCoordinator
from skidway.shares.coordinator.operations import DONE, Ask, Initialize, Read, State, Write
from skidway.shares.coordinator.state import FIRST_SNAPSHOT, ShareState, Snapshot, Update
from values import replace


@contextmanager
def stored_after_the_answer() -> Iterator[None]:
    """A share coordinator answers a write when it is appended, not when it is committed."""
    original = Replicated.submit

    def submit(self: Any, operation: Operation[Any], now: Now, respond: Callable[[Any], None]) -> None:
        if not isinstance(self.machine, ShareCoordinator) or not _only_writes(operation):
            original(self, operation, now, respond)
            return
        told: list[Any] = []

        def once(reply: Any) -> None:
            if not told:
                told.append(reply)
                respond(reply)

        original(self, operation, now, once)
        if self.parked and not told:
            last = self.parked[-1]
            last.replies[0][0](last.replies[0][1])

    with patch.object(Replicated, "submit", submit):
        yield


def _only_writes(operation: Operation[Any]) -> bool:
    # A read that is answered too early breaks a law of its own, before any write could.
    return isinstance(operation, Ask) and all(isinstance(question, Write) for question in operation.questions)


@contextmanager
def late_writes_move_the_start_back() -> Iterator[None]:
    """#23074."""
    original = ShareCoordinator._write

    def write(self: ShareCoordinator, draft: Draft, asked: Write, wall_ms: int) -> Any:
        before = draft.get(asked.key)
        if before is None or not 0 <= asked.start_offset < before.snapshot.start_offset:
            return original(self, draft, asked, wall_ms)
        snapshot = before.snapshot
        draft.write(asked.key, Update(snapshot.snapshot_epoch, snapshot.leader_epoch, asked.start_offset, -1, []))
        return DONE

    with patch.object(ShareCoordinator, "_write", write):
        yield


@contextmanager
def done_counts_never_fall() -> Iterator[None]:
    """A new start offset keeps the number of the one before."""

    def after(before: Snapshot, start_offset: int, complete_count: int) -> int:
        return max(before.complete_count, complete_count)

    with patch.object(machine, "complete_count_after", after), patch.object(state, "complete_count_after", after):
        yield


@contextmanager
def initialised_again() -> Iterator[None]:
    """A request to initialise that comes twice wipes what is stored (#23190)."""
    original = ShareCoordinator._initialize

    def initialize(self: ShareCoordinator, draft: Draft, asked: Initialize, wall_ms: int) -> Any:
        before = draft.get(asked.key)
        if before is None or before.snapshot.state_epoch != asked.state_epoch:
            return original(self, draft, asked, wall_ms)
        epoch = before.snapshot.leader_epoch
        draft.write(
            asked.key, Snapshot(FIRST_SNAPSHOT, asked.state_epoch, epoch, asked.start_offset, 0, wall_ms, wall_ms)
        )
        return DONE

    with patch.object(ShareCoordinator, "_initialize", initialize):
        yield


@contextmanager
def older_leaders_write() -> Iterator[None]:
    """Nobody looks which leader writes."""
    original = ShareCoordinator._write

    def write(self: ShareCoordinator, draft: Draft, asked: Write, wall_ms: int) -> Any:
        before = draft.get(asked.key)
        if before is not None:
            asked = replace(asked, leader_epoch=before.snapshot.leader_epoch)
        return original(self, draft, asked, wall_ms)

    with patch.object(ShareCoordinator, "_write", write):
        yield


@contextmanager
def reads_fence_nobody() -> Iterator[None]:
    """A new leader reads, and the one before goes on writing."""

    def read(self: ShareCoordinator, draft: Draft, asked: Read, wall_ms: int) -> Any:
        snapshot = self._known(draft, asked.key).snapshot
        return State(snapshot.state_epoch, snapshot.start_offset, snapshot.batches)

    with patch.object(ShareCoordinator, "_read", read), older_leaders_write():
        yield


@contextmanager
def snapshots_forget_the_last_update() -> Iterator[None]:
    """The update that makes a snapshot due is not in it (#21426)."""
    original = ShareCoordinator._change

    def changed(
        self: ShareCoordinator, draft: Draft, key: Any, known: ShareState, update: Update, wall_ms: int
    ) -> None:
        if known.updates < self.settings.updates_per_snapshot:
            original(self, draft, key, known, update, wall_ms)
        else:
            original(self, draft, key, known, replace(update, batches=[]), wall_ms)

    with patch.object(ShareCoordinator, "_change", changed):
        yield


@contextmanager
def needed_snapshots_pruned() -> Iterator[None]:
    """The log is cut above a snapshot that still counts."""
    with patch.object(ShareCoordinator, "redundant_below", property(lambda self: self._end_offset)):
        yield


@contextmanager
def late_words_win() -> Iterator[None]:
    """Where batches overlap, the last one that comes counts."""
    original = batches._merge_one

    def merge(found: list[StateBatch], new: StateBatch) -> None:
        overlapping = [each for each in found if each.first <= new.last and new.first <= each.last]
        for old in overlapping:
            found.remove(old)
            if old.first < new.first:
                original(found, old._replace(last=new.first - 1))
            if old.last > new.last:
                original(found, old._replace(first=new.last + 1))
        original(found, new)

    with patch.object(batches, "_merge_one", merge):
        yield


@contextmanager
def new_partitions_skip_records() -> Iterator[None]:
    """Partitions that are added to a topic do not begin at 0 (KAFKA-20742)."""
    original = change.StateItem

    def item(topic_id: bytes, partition: int, start_offset: int = -1) -> Any:
        return original(topic_id, partition, 5 if start_offset == 0 else start_offset)

    with patch.object(change, "StateItem", item):
        yield
