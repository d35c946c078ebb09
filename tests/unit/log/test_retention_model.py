"""Retention against a model of Kafka's rules: what is deleted is exactly what is too old or too much, and nothing else.

The rules: oldest segments first, whole segments only, nothing above the high watermark. By size a segment goes if what
is left is still at least `retention.bytes`; by age if its largest timestamp is more than `retention.ms` ago. The active
segment is closed first if it is to go. Records without timestamps never grow old; timestamps in the future keep their
segment, and those behind it, until then.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_by_hand import DIRECTORY, NOW, checkpoint, open_log, sync
from msgspec.structs import replace

from skidway.log import retention
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk

SEGMENT_BYTES = 700
SEGMENT_MS = 5_000
NEVER = -1
Step = tuple[str, int, int | None]
BASIC = LogSettings(segment_bytes=SEGMENT_BYTES, segment_ms=SEGMENT_MS, file_delete_delay_ms=0)

AGES = st.sampled_from([0, 1, 999, 1_000, 1_001, 4_999, 5_000, 5_001, 20_000, -1_000, -(10**12)])
APPENDS = st.tuples(st.just("append"), st.integers(1, 3), st.one_of(AGES, st.none()))
STEPS = st.one_of(
    APPENDS,
    st.tuples(st.just("time"), st.sampled_from([0, 1, 500, 1_000, 5_000, 60_000]), st.none()),
    st.tuples(st.just("bytes"), st.sampled_from([-1, 0, 1, 300, 700, 701, 1_400, 5_000]), st.none()),
    st.tuples(st.just("age"), st.sampled_from([-1, 0, 1, 1_000, 5_000, 10**13]), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 40), st.none()),
    st.tuples(st.just("commit"), st.sampled_from([0, 1, 5, 10, 1_000]), st.none()),
    st.tuples(st.just("policy"), st.sampled_from([0, 1]), st.none()),
    st.tuples(st.just("retain"), st.just(0), st.none()),
    st.just(("commit", 1_000, None)),
    st.tuples(st.just("reopen"), st.sampled_from([0, 1]), st.none()),
)


@dataclass
class Batch:
    base: int
    count: int
    size: int
    timestamp: int


@dataclass
class Naive:
    settings: LogSettings
    segments: list[list[Batch]] = field(default_factory=lambda: [[]])
    bases: list[int] = field(default_factory=lambda: [0])
    created: int = 0
    start: int = 0
    end: int = 0
    high_watermark: int = 0

    def append(self, batch: Batch, now: int) -> None:
        active = self.segments[-1]
        if active and self._is_full(active, batch, now):
            self._roll()
        if not self.segments[-1]:
            self.created = now
        self.segments[-1].append(batch)
        self.end += batch.count

    def _is_full(self, active: list[Batch], batch: Batch, now: int) -> bool:
        if size_of(active) + batch.size > self.settings.segment_bytes:
            return True
        first = active[0].timestamp
        return batch.timestamp > first + SEGMENT_MS if first >= 0 else now > self.created + SEGMENT_MS

    def _roll(self) -> None:
        self.segments.append([])
        self.bases.append(self.end)

    def retain(self, now: int) -> None:
        self._forget_deleted()
        if not self.settings.cleanup_delete:
            return
        if self.settings.retention_bytes >= 0:
            excess = sum(map(size_of, self.segments)) - self.settings.retention_bytes
            while self._may_go() and excess >= size_of(self.segments[0]):
                excess -= size_of(self.segments[0])
                self._go()
        if self.settings.retention_ms >= 0:
            while self._may_go() and self._is_old(now):
                self._go()

    def _may_go(self) -> bool:
        end = self.bases[1] if len(self.bases) > 1 else self.end
        return bool(self.segments[0]) and end <= self.high_watermark

    def _is_old(self, now: int) -> bool:
        largest = max(batch.timestamp for batch in self.segments[0])
        return largest >= 0 and now - largest > self.settings.retention_ms

    def _go(self) -> None:
        if len(self.segments) == 1:
            self._roll()
        del self.segments[0], self.bases[0]
        self.start = max(self.start, self.bases[0])

    def delete(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            self._forget_deleted()

    def _forget_deleted(self) -> None:
        while len(self.bases) > 1 and self.bases[1] <= self.start:
            del self.segments[0], self.bases[0]

    def batches(self) -> list[int]:
        return [batch.base for segment in self.segments for batch in segment]


def size_of(segment: list[Batch]) -> int:
    return sum(batch.size for batch in segment)


def files(disk: SimDisk) -> list[int]:
    return [int(name[:-4]) for name in disk.list(DIRECTORY) if name.endswith(".log")]


def tidy(log: Log, now: int) -> None:
    """As maintenance does: checkpoints rename what was given up, and remove it later."""
    for _ in range(2):
        log.doomed.schedule(now, log.settings.file_delete_delay_ms)
        ticket = checkpointing.begin(log)
        if ticket is not None:
            ticket.run()
            log.finish_sync(ticket)


@given(st.lists(APPENDS, max_size=12), st.lists(STEPS, min_size=10, max_size=40))
@settings(max_examples=150)
@example([("append", 1, 0)], [("commit", 1_000, None), ("bytes", 0, None), ("retain", 0, None)])
@example([("append", 1, 5_000)], [("age", 0, None), ("retain", 0, None)])
def test_retention_deletes_what_the_rules_say_and_nothing_else(before: list[Step], steps: list[Step]) -> None:
    disk, now = SimDisk(), NOW
    model = Naive(BASIC)
    log = open_log(disk, BASIC)
    for step, amount, age in [*before, *steps]:
        if step == "append":
            timestamp = NEVER if age is None else now - age
            batch = build_batch([Record(number, timestamp, None, b"v" * 60, []) for number in range(amount)])
            base = log.append(batch, read_header(batch), 0, now)
            model.append(Batch(base, amount, len(batch), timestamp), now)
        elif step == "time":
            now += amount
        elif step == "commit":
            sync(log)
            model.high_watermark = max(model.high_watermark, min(amount, model.end))
            log.advance_high_watermark(min(amount, model.end))
        elif step == "delete" and amount <= model.high_watermark:
            retention.delete_before(log, amount)
            model.delete(amount)
        elif step in ("bytes", "age", "policy"):
            name = {"bytes": "retention_bytes", "age": "retention_ms", "policy": "cleanup_delete"}[step]
            value = bool(amount) if step == "policy" else amount
            changed: dict[str, Any] = {name: value}
            log.settings = model.settings = replace(model.settings, **changed)
        elif step == "retain":
            retention.apply(log, now)
            model.retain(now)
        elif step == "reopen":
            sync(log)
            tidy(log, now)
            if amount:
                checkpointing.save(log)
                log.close()
            log = open_log(
                disk,
                model.settings,
                clean=bool(amount),
                start_offset=log.start_offset,
                recovery_point=log.saved.recovery_point,
            )
            log.begin_at(model.high_watermark)
            model.created = NOW
        assert (log.start_offset, log.end_offset) == (model.start, model.end), step
        assert [segment.base_offset for segment in log.segments] == model.bases, step
        assert [batch[1] for batch in log.batches()] == model.batches(), step
    log.advance_high_watermark(log.end_offset)
    checkpoint(log) if log.end_offset > log.saved.recovery_point else None
    tidy(log, now)
    assert files(disk) == model.bases, "and on the disk is nothing else"
