"""A compacted log on a disk that forgets: no newest value is lost, no deleted one comes back, wherever power fails.

A run is a list of steps with a seed each. The model remembers every record ever appended; after every step and every
restart what a reader sees is held against it.
"""

import random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skidway.errors import StorageError
from skidway.limits import Limits
from skidway.log import retention, truncation
from skidway.log.bounds import Bound
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import CleanTicket, Compaction, DirectCompactor, SwapTicket
from skidway.log.durability import checkpointing
from skidway.log.logs import Logs
from skidway.log.producers import Producers
from skidway.log.settings import LogSettings
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.record import Record, build_batch, read_records
from skidway.sim.world.disk import Crashed, SimDisk

TOPIC, TOPIC_ID = "state", bytes(range(16))
KEYS = [b"a", b"b", b"c", b"d", b"e" * 40]


class World:
    """One partition, its disk, and the model."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.settings = LogSettings(
            segment_bytes=draw.choice([400, 900, 3000]),
            index_interval_bytes=draw.choice([0, 100, 4096]),
            retention_ms=-1,
            retention_bytes=draw.choice([-1, -1, 2500]),
            cleanup_delete=True,
            compact=True,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=draw.choice([0, 50, 10_000]),
            file_delete_delay_ms=10,
        )
        self.limits = Limits(compaction_bytes_max=draw.choice([24 * 4, 24 * 1000]))
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.headers: list[BatchHeader] = []
        self.records: dict[int, Record] = {}
        self.sequences: dict[int, int] = {}
        self.gone: set[int] = set()
        """Offsets that compaction was seen to have dropped."""
        self.restarts = 0
        self.compactions = 0
        self.running: tuple[Compaction, CleanTicket | SwapTicket] | None = None
        self.committed = 0
        self.restarting: int | None = None
        self.cutting_to = 1 << 62
        self.abandoned = 0
        self.logs = Logs(self.disk, self.limits)
        self.log = self.logs.create(TOPIC, 0, TOPIC_ID, self.settings, self.now_ms)

    # Steps.

    def append(self, draw: random.Random) -> None:
        self.now_ms += draw.randrange(20)
        base_offset = self.log.end_offset
        records = [
            Record(
                base_offset + i,
                self.now_ms + draw.randrange(-5, 5),
                draw.choice(KEYS),
                None if draw.randrange(4) == 0 else draw.randbytes(draw.randrange(60)),
            )
            for i in range(draw.randrange(1, 5))
        ]
        producer_id = draw.choice([-1, 7, 8])
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            codec=draw.choice([0, 0, 1, 3, 4]),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        header = read_header(batch)
        if producer_id >= 0:
            assert self.log.producers.check(header) is None
            self.sequences[producer_id] = sequence + len(records)
        # Noted before the disk is touched: a crash inside the append may leave the batch whole.
        self.headers.append(header._replace(base_offset=base_offset))
        self.records.update({record.offset: record for record in records})
        assert self.log.append(batch, header, self.restarts, self.now_ms) == base_offset

    def roll(self, draw: random.Random) -> None:
        self.log.roll(self.now_ms)

    def sync(self, draw: random.Random) -> None:
        ticket = checkpointing.begin(self.log) if draw.randrange(3) else self.log.begin_sync()
        if ticket is not None:
            ticket.run()
            self.log.finish_sync(ticket)
            ends = [h.last_offset + 1 for h in self.headers if h.last_offset < self.log.synced_offset]
            self.log.advance_high_watermark(draw.choice(ends[-3:] or [0]))
            self.committed = max(self.committed, self.log.high_watermark)

    def save(self, draw: random.Random) -> None:
        ticket = self.logs.begin_save()
        assert ticket is not None
        ticket.run()
        self.logs.finish_save(ticket)

    def wait(self, draw: random.Random) -> None:
        self.now_ms += draw.choice([30, 200, 20_000])

    def step_compaction(self, draw: random.Random) -> None:
        if self.running is None:
            if cleaning.candidate(self.log, self.now_ms) is None:
                return
            compaction = cleaning.begin(self.log, self.now_ms, f"{draw.randrange(1 << 32):08x}")
            assert compaction is not None
            self.running = compaction, compaction.clean(DirectCompactor(self.disk))
            return
        compaction, ticket = self.running
        try:
            ticket.run()
        except OSError:
            assert compaction.abandoned  # the files it was to read are gone
        if isinstance(ticket, CleanTicket):
            if ticket.result is None:
                assert compaction.abandoned, ticket.damage
                compaction.end()
                self.running = None
                return
            following = compaction.on_cleaned(ticket.result)
        else:
            following = compaction.on_swapped(ticket)
        self.running = (compaction, following) if following is not None else None
        self.compactions += following is None

    def compact(self, draw: random.Random) -> None:
        self.step_compaction(draw)
        while self.running is not None:
            self.step_compaction(draw)

    def forget(self, draw: random.Random) -> None:
        if draw.randrange(2):
            retention.apply(self.log, self.now_ms)
        elif not draw.randrange(3):
            retention.delete_before(self.log, draw.randrange(self.log.start_offset, self.log.high_watermark + 1))
        self.log.doomed.schedule(self.now_ms + 100, self.log.settings.file_delete_delay_ms)

    def cut(self, draw: random.Random) -> None:
        """A new leader does not have its tail. What is being compacted is committed, and goes on."""
        self.cutting_to = offset = draw.randrange(self.committed, self.log.end_offset + 1)
        for header in self.headers:
            if header.base_offset < offset <= header.last_offset:
                self.cutting_to = header.base_offset
        compaction = self.log.compaction
        truncation.truncate(self.log, offset, self.now_ms)
        assert self.log.compaction is compaction
        self.cutting_to = 1 << 62
        self.keep_below_end()

    def begin_anew(self, draw: random.Random) -> None:
        """A leader that begins elsewhere: what is being compacted is nothing any more."""
        offset = draw.randrange(self.log.end_offset + 10)
        compaction = self.log.compaction
        self.restarting = offset
        try:
            truncation.restart(self.log, offset, self.now_ms)
        except StorageError:
            assert compaction is not None or self.log.doomed
            self.restarting = None
            assert self.log.failure is None
            return
        assert self.log.compaction is None
        self.abandoned += compaction is not None
        self.on_restarted(offset)

    def on_restarted(self, offset: int) -> None:
        self.restarting = None
        self.committed = offset
        self.keep_below_end()
        assert self.log.start_offset == self.log.end_offset == offset
        self.headers, self.records, self.gone, self.sequences = [], {}, set(), {}

    def close(self, draw: random.Random) -> None:
        if self.running is None:
            self.logs.close(clean=True)
            self.reopen()

    def crash(self, draw: random.Random) -> None:
        self.disk.crash(draw)
        while True:
            if not draw.randrange(3):
                self.disk.crash_at = self.disk.operations + 1 + draw.randrange(8)
            try:
                self.reopen()
                break
            except Crashed:
                self.disk.crash(draw)
        self.disk.crash_at = None

    def crash_soon(self, draw: random.Random) -> None:
        self.disk.crash_at = self.disk.operations + 1 + draw.randrange(40)

    STEPS: ClassVar[tuple[Any, ...]] = (
        *[append] * 8,
        *[roll, sync] * 3,
        *[step_compaction] * 4,
        *[compact, compact, save, wait, forget, cut, cut, close, crash, crash_soon, crash_soon],
        *[begin_anew],
    )

    def play(self, steps: list[tuple[int, int]]) -> None:
        for number, seed in steps:
            draw = random.Random(seed)
            try:
                self.STEPS[number](self, draw)
            except Crashed:
                self.crash(draw)
            self.check()
        self.disk.crash_at = None
        self.crash(random.Random(len(steps)))
        self.check()

    def reopen(self) -> None:
        synced = self.log.synced_offset if self.restarting is None else 0
        self.restarts += 1
        self.running = None
        self.logs = Logs(self.disk, self.limits)
        if (TOPIC, 0) in self.logs.found:
            self.log = self.logs.load(TOPIC, 0, self.settings, self.now_ms, TOPIC_ID)
        else:
            self.log = self.logs.create(TOPIC, 0, TOPIC_ID, self.settings, self.now_ms)
        assert self.log.failure is None, self.log.failure
        offset, log = self.restarting, self.log
        if (log.start_offset, log.end_offset, log.size()) == (offset, offset, 0):
            self.on_restarted(log.end_offset)
        self.restarting = None
        assert self.log.end_offset >= min(synced, self.cutting_to)
        self.cutting_to = 1 << 62
        self.log.begin_at(self.logs.offsets.watermarks.get((TOPIC, 0), 0))
        assert self.log.high_watermark <= max(self.committed, self.log.start_offset)
        self.keep_below_end()
        names = self.disk.list(f"{TOPIC}-0")
        assert not [name for name in names if name.endswith((".swap", ".cleaned"))]

    def keep_below_end(self) -> None:
        # What never became durable was never there.
        self.headers = [header for header in self.headers if header.base_offset < self.log.end_offset]
        self.records = {offset: record for offset, record in self.records.items() if offset < self.log.end_offset}
        self.gone = {offset for offset in self.gone if offset < self.log.end_offset}
        self.sequences = {
            header.producer_id: header.last_sequence + 1 for header in self.headers if header.producer_id >= 0
        }

    # Checks.

    def check(self) -> None:
        log = self.log
        found = self.read_all()
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), "order"
        for record in found:
            assert record == self.records[record.offset], "every record as it was written"
        assert not self.gone.intersection(offsets), "nothing comes back"
        self.gone.update(set(range(log.start_offset, log.end_offset)).difference(offsets))
        self.check_newest(found)
        self.check_producers()
        for offset in range(log.start_offset, log.end_offset):
            segment, position = log.locate(offset)
            scanned = next((s.base_offset, b[0]) for s in log.segments for b in s.batches(0, s.size) if b[2] >= offset)
            assert (segment.base_offset, position) == scanned, "the index says what a scan says"

    def read_all(self) -> list[Record]:
        log = self.log
        records: list[Record] = []
        offset = log.start_offset
        while (slice_ := log.read(offset, 300, Bound.END)) is not None:
            data = slice_.read()
            for position, header in iter_headers(data):
                batch = data[position : position + header.size]
                assert crc_matches(batch)
                records += read_records(batch, decompressed_bytes_max=1 << 20)
                offset = header.last_offset + 1
        assert offset == log.end_offset
        return [record._replace(headers=()) for record in records if record.offset >= log.start_offset]

    def check_newest(self, found: list[Record]) -> None:
        """A reader from the start learns the newest value of every key, or that it is deleted."""
        told = {record.key: record for record in found}
        for key in KEYS:
            own = [r for r in self.records.values() if r.key == key and r.offset >= self.log.start_offset]
            newest = max(own, key=lambda record: record.offset, default=None)
            if newest is None:
                continue
            if key in told:
                assert told[key] == newest, "an old value after a newer one was dropped"
                continue
            # Only a tombstone may be gone, and only when it has had its time.
            assert newest.value is None, f"the newest value of {key!r} is lost"
            assert self.now_ms >= newest.timestamp - 5 + self.settings.delete_retention_ms

    def check_producers(self) -> None:
        replayed = Producers()
        for h in self.headers:
            if h.producer_id >= 0:
                replayed.record(
                    h.producer_id,
                    h.producer_epoch,
                    h.base_sequence,
                    h.base_offset,
                    h.last_offset_delta,
                    h.max_timestamp,
                    h.attributes,
                    0,
                )
        assert self.log.producers.state() == replayed.state()


STEPS = st.lists(st.tuples(st.integers(0, len(World.STEPS) - 1), st.integers(0, 2**16)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 50), steps=STEPS)
def test_the_newest_value_of_every_key_survives(seed: int, steps: list[tuple[int, int]]) -> None:
    World(seed).play(steps)


@pytest.mark.parametrize("seed", range(80))
def test_long_histories_of_a_compacted_log(seed: int) -> None:
    draw = random.Random(seed)
    steps = [(draw.randrange(len(World.STEPS)), draw.randrange(2**32)) for _ in range(150)]
    world = World(seed)
    world.play(steps)
    assert world.restarts > 0


def test_the_histories_do_compact() -> None:
    total = abandoned = 0
    for seed in range(20):
        draw = random.Random(seed)
        world = World(seed)
        world.play([(draw.randrange(len(World.STEPS)), draw.randrange(2**32)) for _ in range(150)])
        total += world.compactions
        abandoned += world.abandoned
    assert total > 20
    assert abandoned
