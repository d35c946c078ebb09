"""One partition's share coordinator: a decide/apply machine over the records of `__share_group_state`.

It keeps what is durable of share-partitions for the brokers that deliver from them: those write what was settled, and
read all of it when they begin to lead. Group coordinators initialise and delete. Two epochs keep the old away: a
reader's leader epoch fences the leaders before it, a new state epoch (an admin has moved the offsets) all that was read
before. Nobody writes who has not read: a group that is deleted and made anew may come to the same state epoch again.

Most writes are updates; after so many a snapshot takes their place. Nothing below the oldest snapshot that still counts
is needed: the log is cut there now and then. A share-partition that nobody writes to would hold that back, so its
snapshot is taken again, but only when there is more to cut off than to write again.

Where Kafka 4.4 decides otherwise, on purpose:
- Initialise in the same state epoch does nothing. Kafka wipes what is stored, and a request that is sent twice with it.
- The leader epoch survives a new state epoch, so a leader that was fenced stays so.
- A write in a state epoch that is not the newest one, or of a leader that has not read, is FENCED_STATE_EPOCH.
- A start offset and the number of records done behind it never go back. What cannot be is refused (`checking`):
  offsets that are reversed, out of order or far behind the start, states that are never stored, times that are too
  long.
- What is stored may be deleted whether its topic is there or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from skidway.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    PolicyViolation,
    ProtocolError,
    UnknownTopicOrPartition,
)
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.shares.coordinator.batches import merged
from skidway.shares.coordinator.checking import check_initialize, check_write
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import (
    DONE,
    NOT_THERE,
    Answer,
    Ask,
    Delete,
    Initialize,
    Prune,
    Question,
    Read,
    ReadSummary,
    State,
    Summary,
    Tick,
    TopicsChanged,
    Write,
)
from skidway.shares.coordinator.records import ShareRecord
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.shares.coordinator.state import (
    FIRST_SNAPSHOT,
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    ShareState,
    Snapshot,
    Update,
    after_snapshot,
    after_update,
    complete_count_after,
)

NEVER_MS = 1 << 60
AT_ONCE_MAX = 500
"""Snapshots and tombstones of one tick; the rest follows in the next one."""

Decided = Decision[ShareRecord, Any]


class Topics(Protocol):
    """What a coordinator has to know of topics."""

    def name_of(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int | None: ...


class Checked:
    """A note: when to look next at what can be forgotten."""

    __slots__ = ("due_ms",)

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms


class ShareCoordinator(TimedMachine[ShareRecord]):
    def __init__(self, settings: ShareCoordinatorSettings, topics: Topics) -> None:
        self.settings = settings
        self.topics = topics
        self.states: dict[ShareKey, ShareState] = {}
        self._snapshot_offsets: dict[ShareKey, int] = {}
        """Of the last one of each, in the order of offsets."""
        self._end_offset = 0
        self._needed = 0
        """Records that the states are made of: the last snapshots, and the updates since."""
        self._due_ms = 0

    @property
    def deadline_ms(self) -> int:
        return self._due_ms if self._end_offset else NEVER_MS

    @property
    def redundant_below(self) -> int:
        """Every record below is replaced by one above."""
        return next(iter(self._snapshot_offsets.values()), self._end_offset)

    # --- what records and notes change ---

    def apply(self, record: ShareRecord) -> None:
        key = record.key
        self._end_offset = record.offset + 1
        before = self.states.get(key)
        match record.value:
            case Update() as update:
                if before is not None:  # else it belongs to a snapshot that was pruned, and a newer one follows
                    self.states[key] = after_update(before, update)
                    self._needed += 1
                return
            case Snapshot() as snapshot:
                self._forget(key)
                self.states[key] = after_snapshot(snapshot)
                self._snapshot_offsets[key] = record.offset
                self._needed += 1
            case None:
                self._forget(key)

    def _forget(self, key: ShareKey) -> None:
        before = self.states.pop(key, None)
        if before is not None:
            self._needed -= 1 + before.updates
            del self._snapshot_offsets[key]

    def note(self, note: Any) -> None:
        assert isinstance(note, Checked), f"unknown note {note}"
        self._due_ms = note.due_ms

    # --- decisions ---

    def decide(self, operation: Operation[Any], now: Now) -> Decided:
        match operation:
            case Ask():
                return self._ask(operation, now)
            case TopicsChanged():
                return self._topics_changed(operation)
            case Tick():
                return self._tick(now)
            case _:
                raise AssertionError(f"unknown operation {operation}")

    def _ask(self, asked: Ask, now: Now) -> Decided:
        draft = Draft(self.states)
        answers = [self._answer(draft, question, now.wall_ms) for question in asked.questions]
        return Decision(draft.records, answers)

    def _answer(self, draft: Draft, question: Question, wall_ms: int) -> Answer:
        try:
            match question:
                case Initialize():
                    return self._initialize(draft, question, wall_ms)
                case Read():
                    return self._read(draft, question, wall_ms)
                case Write():
                    return self._write(draft, question, wall_ms)
                case Delete():
                    return self._delete(draft, question)
                case ReadSummary():
                    return self._read_summary(draft, question)
        except ProtocolError as refusal:
            return refusal.with_traceback(None)

    def _initialize(self, draft: Draft, asked: Initialize, wall_ms: int) -> Answer:
        before = draft.get(asked.key)
        check_initialize(asked, None if before is None else before.snapshot)
        if before is not None and asked.state_epoch < before.snapshot.state_epoch:
            raise _fenced_state(asked.state_epoch, before.snapshot)
        if before is not None and asked.state_epoch == before.snapshot.state_epoch:
            return DONE
        self._check_place(asked.key)
        if before is None and draft.size >= self.settings.keys_max:
            raise PolicyViolation(
                f"this coordinator keeps {self.settings.keys_max} share-partitions, and takes no more"
            )
        snapshot = Snapshot(
            FIRST_SNAPSHOT if before is None else before.snapshot.snapshot_epoch + 1,
            asked.state_epoch,
            NO_EPOCH if before is None else before.snapshot.leader_epoch,
            asked.start_offset,
            NO_COUNT if asked.start_offset == NO_OFFSET else 0,
            wall_ms,
            wall_ms,
        )
        draft.write(asked.key, snapshot)
        return DONE

    def _read(self, draft: Draft, asked: Read, wall_ms: int) -> Answer:
        state = self._known(draft, asked.key)
        snapshot = state.snapshot
        if asked.leader_epoch < snapshot.leader_epoch:
            raise _fenced_leader(asked.leader_epoch, snapshot)
        self._check_place(asked.key)
        if asked.leader_epoch > snapshot.leader_epoch:
            self._change(
                draft, asked.key, state, replace(_nothing_new(snapshot), leader_epoch=asked.leader_epoch), wall_ms
            )
        return State(snapshot.state_epoch, snapshot.start_offset, snapshot.batches, snapshot.letters, snapshot.terms)

    def _write(self, draft: Draft, asked: Write, wall_ms: int) -> Answer:
        state = self._known(draft, asked.key)
        before = state.snapshot
        if asked.leader_epoch < before.leader_epoch:
            raise _fenced_leader(asked.leader_epoch, before)
        if asked.state_epoch != before.state_epoch:
            raise _fenced_state(asked.state_epoch, before)
        if asked.leader_epoch > before.leader_epoch:
            raise FencedStateEpoch(f"leader epoch {asked.leader_epoch} has not read the state")
        self._check_place(asked.key)
        check_write(asked, before, self.settings.batches_max)
        start_offset = max(asked.start_offset, before.start_offset)
        update = Update(
            before.snapshot_epoch,
            before.leader_epoch,
            start_offset,
            complete_count_after(before, asked.start_offset, asked.complete_count),
            merged((), asked.batches, start_offset),
            asked.letters,
            asked.terms,
        )
        self._change(draft, asked.key, state, update, wall_ms)
        return DONE

    def _change(self, draft: Draft, key: ShareKey, state: ShareState, update: Update, wall_ms: int) -> None:
        if state.updates < self.settings.updates_per_snapshot:
            draft.write(key, update)
            return
        changed = after_update(state, update).snapshot
        draft.write(key, _again(changed, created_ms=wall_ms, written_ms=wall_ms))

    def _delete(self, draft: Draft, asked: Delete) -> Answer:
        if draft.get(asked.key) is not None:
            draft.write(asked.key, None)
        return DONE

    def _read_summary(self, draft: Draft, asked: ReadSummary) -> Answer:
        self._check_place(asked.key)
        known = draft.get(asked.key)
        if known is None:
            return NOT_THERE
        snapshot = known.snapshot
        return Summary(snapshot.state_epoch, snapshot.leader_epoch, snapshot.start_offset, snapshot.complete_count)

    def _known(self, draft: Draft, key: ShareKey) -> ShareState:
        known = draft.get(key)
        if known is None:
            raise InvalidRequest("the share-partition has not been initialised")
        return known

    def _check_place(self, key: ShareKey) -> None:
        name = self.topics.name_of(key.topic_id)
        count = None if name is None else self.topics.partition_count(name)
        if count is None or not 0 <= key.partition < count:
            raise UnknownTopicOrPartition("there is no such topic id, or no such partition of it")

    # --- what is forgotten ---

    def _topics_changed(self, changed: TopicsChanged) -> Decided:
        """Where many are gone at once the next ticks see to the rest."""
        return Decision([], None, [Checked(0)] if changed.deleted and self.states else [])

    def _tick(self, now: Now) -> Decided:
        decision: Decided = Decision([], None)
        if self._forget_deleted(decision) or self._take_again(decision, now.wall_ms):
            decision.notes.append(Checked(now.monotonic_ms))
            return decision
        decision.notes.append(Checked(now.monotonic_ms + self.settings.prune_interval_ms))
        if not decision.records:
            # When this is performed, everything is committed that makes it true.
            decision.effects.append(Prune(self.redundant_below))
        return decision

    def _forget_deleted(self, decision: Decided) -> bool:
        """Whether some are left for the next tick."""
        is_there: dict[bytes, bool] = {}
        for key in self.states:
            topic_id = key.topic_id
            if topic_id not in is_there:
                # Whoever initialised it had read of the topic before this node was made the leader here.
                is_there[topic_id] = self.topics.name_of(topic_id) is not None
            if not is_there[topic_id]:
                if len(decision.records) >= AT_ONCE_MAX:
                    return True
                decision.records.append(ShareRecord(key, None))
        return bool(decision.records)

    def _take_again(self, decision: Decided, wall_ms: int) -> bool:
        """Snapshots of what nobody has written to for long. Whether there may be more to do in the next tick."""
        span = self._end_offset - self.redundant_below
        if span - self._needed <= len(self.states):
            return False
        for key in self._snapshot_offsets:
            snapshot = self.states[key].snapshot
            if len(decision.records) >= AT_ONCE_MAX or wall_ms - snapshot.written_ms < self.settings.prune_interval_ms:
                break
            # When it was made stays, as in Kafka.
            decision.records.append(ShareRecord(key, _again(snapshot, snapshot.created_ms, wall_ms)))
        return bool(decision.records)


class Draft:
    """The states as the questions of one operation see them, each after those before it."""

    __slots__ = ("_changed", "_states", "records", "size")

    def __init__(self, states: Mapping[ShareKey, ShareState]) -> None:
        self._states = states
        self._changed: dict[ShareKey, ShareState | None] = {}
        self.records: list[ShareRecord] = []
        self.size = len(states)

    def get(self, key: ShareKey) -> ShareState | None:
        return self._changed[key] if key in self._changed else self._states.get(key)

    def write(self, key: ShareKey, value: Snapshot | Update | None) -> None:
        before = self.get(key)
        self.size += (value is not None) - (before is not None)
        match value:
            case None:
                self._changed[key] = None
            case Snapshot():
                self._changed[key] = after_snapshot(value)
            case Update():
                assert before is not None, "an update of nothing"
                self._changed[key] = after_update(before, value)
        self.records.append(ShareRecord(key, value))


def _nothing_new(snapshot: Snapshot) -> Update:
    return Update(snapshot.snapshot_epoch, snapshot.leader_epoch, snapshot.start_offset, snapshot.complete_count)


def _again(snapshot: Snapshot, created_ms: int, written_ms: int) -> Snapshot:
    return replace(snapshot, snapshot_epoch=snapshot.snapshot_epoch + 1, created_ms=created_ms, written_ms=written_ms)


def _fenced_leader(leader_epoch: int, stored: Snapshot) -> FencedLeaderEpoch:
    return FencedLeaderEpoch(f"leader epoch {leader_epoch}, where {stored.leader_epoch} has read the state")


def _fenced_state(state_epoch: int, stored: Snapshot) -> FencedStateEpoch:
    return FencedStateEpoch(f"state epoch {state_epoch}, where {stored.state_epoch} is the newest")
