"""What is committed of share-partitions, followed in `__share_group_state` by an all-knowing observer.

| law | meaning |
|---|---|
| share-start | a start goes back, or passes what nobody has settled; a partition that came later does not start at 0 |
| unexplained-end | a record is stored as accepted or archived, and nobody said so, nor was it delivered too often |
| old-epochs | an older leader or an older state epoch has written |
| share-state | a snapshot, or what a coordinator or a leader has in memory, is not what the records before say |
| share-lag | the number of records done behind the start is not what the states say |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from skidway.broker.coordinators.shares import SHARES_TOPIC
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.records.batch import iter_headers
from skidway.records.record import read_records
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.records import ShareRecord, decode
from skidway.shares.coordinator.state import Snapshot, Update
from skidway.shares.states import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from skidway.shares.terms import TermNotes
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation, World

READ_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 24
TERMINAL = (ACKNOWLEDGED, ARCHIVED)

Cells = dict[int, tuple[int, int]]
"""By offset: delivery count and state, where one was written."""


class Causes(Protocol):
    def may_end(self, key: ShareKey, offset: int, state: int) -> bool:
        """Whether somebody has said so, or it was delivered as often as may be, or is gone from the log."""
        ...

    def is_unsure(self, key: ShareKey) -> bool:
        """Whether it is not known of something that was said whether it is stored."""
        ...


@dataclass(slots=True)
class Stored:
    """One share-partition, as its records say."""

    state_epoch: int
    first_start: int
    """Where it began in this state epoch."""
    start: int
    leader_epoch: int = -1
    complete: int = -1
    cells: Cells = field(default_factory=dict)
    term_number: int = 0
    terms: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """By offset: kind, delivery and owner of what is leased or delayed."""

    def state_of(self, offset: int) -> int:
        return self.cells.get(offset, (0, 0))[1]

    def count_of(self, offset: int) -> int:
        return self.cells.get(offset, (0, 0))[0]

    def is_over(self, offset: int) -> bool:
        return offset < self.start or self.state_of(offset) in TERMINAL


@dataclass(slots=True)
class Replay:
    end_offset: int = 0
    states: dict[ShareKey, Stored] = field(default_factory=dict)


class ShareStateLaws:
    def __init__(self, world: World, cluster: Cluster, causes: Causes) -> None:
        self.world = world
        self.cluster = cluster
        self.causes = causes
        self.came_later: Callable[[ShareKey], bool] = lambda key: False
        """Whether its partition was added to a topic that the group read already."""
        self._seen: dict[Partition, int] = {}
        self._replays: dict[tuple[bytes, int], Replay] = {}
        self.stored: dict[ShareKey, Stored] = {}

    # --- when to look ---

    def on_step(self, node: Node) -> None:
        """After everything that happens to a node, so it has to be quick."""
        for partition in node.partitions.of_topic(SHARES_TOPIC):
            log = partition.log
            if log.high_watermark != self._seen.get(partition) and partition.leads:
                self._seen[partition] = log.high_watermark
                if log.failure is None and not log.quarantined:
                    self._follow(partition, log)

    def sweep(self) -> None:
        for _, node in self.cluster.running:
            self.on_step(node)
            for partition, coordinator in node.rooms.services.share_states.shares.loaded.items():
                log, replay = partition.log, self._replays.get((partition.topic_id, partition.index))
                if replay is not None and replay.end_offset == log.high_watermark == log.end_offset:
                    self._check_memory(f"the coordinator in {partition}", replay, coordinator.host.machine.states)

    def _follow(self, partition: Partition, log: Log) -> None:
        replay = self._replays.setdefault((partition.topic_id, partition.index), Replay())
        end_offset = log.high_watermark
        while replay.end_offset < end_offset:
            position = max(replay.end_offset, log.start_offset)
            found = log.read(position, READ_BYTES, Bound.HIGH_WATERMARK)
            stored = b"" if found is None else bytes(found.read())
            before = replay.end_offset
            for at, header in iter_headers(stored):
                if header.base_offset >= replay.end_offset and header.last_offset < end_offset:
                    replay.end_offset = header.last_offset + 1
                    if not header.is_control:
                        batch = stored[at : at + header.size]
                        for record in read_records(batch, decompressed_bytes_max=RECORD_BYTES_MAX):
                            changed = decode(record.key or b"", record.value)
                            if changed is not None:
                                self._take(replay, changed)
            if replay.end_offset == before:
                return

    # --- records ---

    def _take(self, replay: Replay, record: ShareRecord) -> None:
        key, before = record.key, replay.states.get(record.key)
        match record.value:
            case None:
                replay.states.pop(key, None)
                self.stored.pop(key, None)
                return
            case Snapshot() as snapshot:
                self._take_snapshot(key, before, snapshot)
                after = Stored(
                    snapshot.state_epoch,
                    snapshot.start_offset
                    if before is None or before.state_epoch != snapshot.state_epoch
                    else before.first_start,
                    snapshot.start_offset,
                    snapshot.leader_epoch,
                    snapshot.complete_count,
                    _cells(snapshot.batches),
                    snapshot.terms.number,
                    _terms(snapshot.terms),
                )
            case Update() as update:
                if before is None:
                    raise Violation("share-state", f"{_name(key)} has an update, and no snapshot before it")
                after = self._updated(key, before, update)
        self._check_ends(key, before, after)
        replay.states[key] = self.stored[key] = after

    def _take_snapshot(self, key: ShareKey, before: Stored | None, snapshot: Snapshot) -> None:
        if before is None or snapshot.state_epoch > before.state_epoch:
            if before is None and snapshot.start_offset > 0 and self.came_later(key):
                raise Violation("share-start", f"{_name(key)} came later and starts at {snapshot.start_offset}")
            return
        if snapshot.state_epoch < before.state_epoch or snapshot.leader_epoch < before.leader_epoch:
            raise Violation("old-epochs", f"{_name(key)}: {before} is followed by {snapshot}")
        if snapshot.start_offset < before.start:
            raise Violation("share-start", f"{_name(key)} went from {before.start} back to {snapshot.start_offset}")
        found = _cells(snapshot.batches)
        for offset, cell in before.cells.items():
            if offset >= snapshot.start_offset and found.get(offset, (0, 0)) < cell:
                raise Violation(
                    "share-state", f"{_name(key)}: a snapshot forgets {cell} at {offset}: {found.get(offset)}"
                )
        terms = _terms(snapshot.terms)
        for offset, term in before.terms.items():
            # What the write changes that a snapshot stands for, it does under a higher number.
            counts = offset >= snapshot.start_offset and snapshot.terms.number <= before.term_number
            if counts and terms.get(offset) != term:
                raise Violation("share-state", f"{_name(key)}: a snapshot forgets {term} at {offset}: {terms}")

    def _updated(self, key: ShareKey, before: Stored, update: Update) -> Stored:
        if update.leader_epoch < before.leader_epoch:
            raise Violation(
                "old-epochs", f"{_name(key)}: leader epoch {update.leader_epoch} writes after {before.leader_epoch}"
            )
        start = before.start if update.start_offset < 0 else update.start_offset
        if start < before.start:
            raise Violation("share-start", f"{_name(key)} went from {before.start} back to {start}")
        cells = dict(before.cells)
        for offset, cell in _cells(update.batches).items():
            cells[offset] = max(cells.get(offset, (0, 0)), cell)
        cells = {offset: cell for offset, cell in cells.items() if offset >= start}
        after = Stored(before.state_epoch, before.first_start, start, update.leader_epoch, update.complete_count, cells)
        after.term_number, terms = before.term_number, dict(before.terms)
        if update.terms.number > before.term_number:
            after.term_number = update.terms.number
            terms |= _terms(update.terms)
        after.terms = {at: term for at, term in terms.items() if at >= start and term[0] != AVAILABLE}
        return after

    def _check_ends(self, key: ShareKey, before: Stored | None, after: Stored) -> None:
        same = before is not None and before.state_epoch == after.state_epoch
        if before is not None and same and before.start >= 0:
            for offset in range(before.start, after.start):
                if before.state_of(offset) not in TERMINAL and not self.causes.may_end(key, offset, ARCHIVED):
                    raise Violation(
                        "share-start",
                        f"{_name(key)}: the start goes from {before.start} to {after.start}, and nobody has settled "
                        f"{offset}",
                    )
        for offset, (_, state) in after.cells.items():
            known = before is not None and same and before.state_of(offset) == state
            if state in TERMINAL and not known and not self.causes.may_end(key, offset, state):
                raise Violation("unexplained-end", f"{_name(key)}: {offset} is stored as {state}, and nobody said so")
        over = sum(state in TERMINAL for _, state in after.cells.values())
        # Fewer: a leader does not know of a write that was stored though nobody answered it, and delivers it again.
        # More, after such a write: what comes again is counted until the start moves.
        if after.complete > over and not self.causes.is_unsure(key):
            raise Violation(
                "share-lag", f"{_name(key)}: {after.complete} are called done behind {after.start}, {over} are"
            )

    # --- memory ---

    def _check_memory(self, who: str, replay: Replay, states: object) -> None:
        assert isinstance(states, dict)
        for key in {*replay.states, *states}:
            stored, state = replay.states.get(key), states.get(key)
            known = (
                (stored.state_epoch, stored.leader_epoch, stored.start, stored.cells, stored.terms) if stored else None
            )
            found = None
            if state is not None:
                snapshot = state.snapshot
                cells = _cells(snapshot.batches)
                terms = _terms(snapshot.terms)
                found = (snapshot.state_epoch, snapshot.leader_epoch, snapshot.start_offset, cells, terms)
            if known != found:
                raise Violation("share-state", f"{who} has {found} for {_name(key)}, its log says {known}")


def _cells(batches: object) -> Cells:
    found: Cells = {}
    for batch in batches:  # type: ignore[attr-defined]
        assert isinstance(batch, StateBatch)
        for offset in range(batch.first, batch.last + 1):
            found[offset] = (batch.delivery_count, int(batch.state))
    return found


def _terms(notes: TermNotes) -> dict[int, tuple[int, int, str]]:
    return {at: (each.kind, each.count, each.owner) for each in notes.terms for at in range(each.first, each.end)}


def _name(key: ShareKey) -> str:
    return f"{key.group_id} {key.topic_id.hex()[:6]}-{key.partition}"
