"""One log on a disk that forgets, and a model that remembers every batch ever appended to it.

A run is a list of steps, each with a seed of its own. After every restart the log is compared with the model.
"""

import random
from bisect import bisect_left
from typing import Any, ClassVar

import pytest

from skidway.errors import StorageError
from skidway.log import lookup, retention
from skidway.log.durability import checkpointing
from skidway.log.durability.sync import SyncTicket
from skidway.log.logs import Logs
from skidway.log.producers import Producers
from skidway.log.settings import LogSettings
from skidway.records.batch import BatchHeader, iter_headers, read_header
from skidway.records.record import Record, build_batch, read_records
from skidway.sim.world.disk import Crashed, SimDisk
from skidway.steps import at_once

TOPIC, TOPIC_ID = "orders", bytes(range(16))


class World:
    """One partition, its disk, and the model: everything that was appended and everything that was promised."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.settings = LogSettings(
            segment_bytes=draw.choice([700, 2000, 10_000]),
            index_interval_bytes=draw.choice([0, 200, 4096]),
            retention_bytes=draw.choice([-1, 1500]),
            retention_ms=-1,
            file_delete_delay_ms=10,
        )
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.appended: list[tuple[BatchHeader, bytes]] = []
        self.sequences: dict[int, int] = {}
        self.promised_end = 0
        self.restarts = 0
        self.tickets: list[tuple[SyncTicket, bool]] = []
        self.logs = Logs(self.disk)
        self.log = self.logs.create(TOPIC, 0, TOPIC_ID, self.settings, self.now_ms)
        self.start_max = 0
        self.doubtful = False
        """A sync has failed since the machine was started."""

    @property
    def epoch(self) -> int:
        return self.restarts

    # Steps.

    def append(self, draw: random.Random, count: int | None = None) -> None:
        self.now_ms += draw.randrange(5)
        count = count or draw.randrange(1, 4)
        timestamp = self.now_ms + draw.randrange(-20, 20)
        records = [
            Record(i, timestamp + draw.randrange(3), b"k", draw.randbytes(draw.randrange(120)), [])
            for i in range(count)
        ]
        producer_id = draw.choice([-1, 7, 8])
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        header = read_header(batch)
        if producer_id >= 0:
            assert self.log.producers.check(header) is None
            self.sequences[producer_id] = sequence + count
        # Noted before the disk is touched: a crash inside the append may leave the batch whole.
        base_offset = self.log.end_offset
        stamped = bytearray(batch)
        stamped[:8] = base_offset.to_bytes(8, "big")
        epoch = self.epoch
        stamped[12:16] = epoch.to_bytes(4, "big")
        self.appended.append((read_header(stamped), bytes(stamped)))
        try:
            assert self.log.append(batch, header, epoch, self.now_ms) == base_offset
        except StorageError:
            assert self.disk.capacity is not None
            assert self.log.end_offset == base_offset
            self.appended.pop()
            if producer_id >= 0:
                self.sequences[producer_id] = sequence
            return
        assert self.log.end_offset == base_offset + count

    def repeat(self, draw: random.Random) -> None:
        """A producer sends one of its last five batches again: it must learn the offset of the first time."""
        for producer_id in (7, 8):
            own = [header for header, _ in self.appended if header.producer_id == producer_id][-5:]
            if own:
                header = draw.choice(own)
                assert self.log.producers.check(header) == header.base_offset

    def fill(self, draw: random.Random) -> None:
        """The disk is full for a while: appends are refused, nothing is harmed."""
        self.disk.capacity = self.disk.used() + draw.randrange(600)
        for _ in range(4):
            self.append(draw)
        ticket = checkpointing.begin(self.log)
        if ticket is not None:
            try:
                ticket.run()
                self.tickets.append((ticket, True))
            except OSError:
                assert ticket.synced
                self.log.finish_without_housekeeping(ticket)
        self.disk.capacity = None

    def break_sync(self, draw: random.Random) -> None:
        """A sync fails: whatever it was for is not promised, and only a restart ends that state."""
        self.disk.failing_syncs = {self.disk.syncs + draw.randrange(4)}
        self.append(draw)
        ticket = checkpointing.begin(self.log) if draw.randrange(2) else self.log.begin_sync()
        try:
            if ticket is not None:
                ticket.run()
                self.tickets.append((ticket, True))
        except OSError as error:
            self.log.fail(str(error))
            with pytest.raises(StorageError):
                self.log.roll(self.now_ms)
            assert self.log.begin_sync() is None
            assert checkpointing.begin(self.log) is None
            self.log.read(self.log.start_offset, 1000)
            self.restart_after_failure(draw)
        self.disk.failing_syncs = None

    def restart_after_failure(self, draw: random.Random) -> None:
        """With the machine, or the process alone: then memory shows what the disk may not have."""
        # Seeds from before there was a choice keep their draws.
        choice = random.Random(draw.getstate()[1][0])
        if choice.randrange(2):
            self.crash(draw)
            return
        self.disk.failing_syncs = None
        self.disk.evict(choice)
        self.doubtful = True
        self.reopen()
        self.check()

    def roll(self, draw: random.Random) -> None:
        self.log.roll(self.now_ms)

    def begin(self, draw: random.Random) -> None:
        ticket = checkpointing.begin(self.log) if draw.randrange(2) else self.log.begin_sync()
        if ticket is not None:
            self.tickets.append((ticket, False))

    def run(self, draw: random.Random) -> None:
        waiting = [number for number, (_, done) in enumerate(self.tickets) if not done]
        if waiting:
            number = draw.choice(waiting)
            ticket, _ = self.tickets[number]
            ticket.run()
            self.tickets[number] = ticket, True

    def finish(self, draw: random.Random) -> None:
        done = [number for number, (_, done) in enumerate(self.tickets) if done]
        if done:
            ticket, _ = self.tickets.pop(draw.choice(done))
            self.log.finish_sync(ticket)
            assert self.log.synced_offset >= ticket.offset
            self.promised_end = max(self.promised_end, self.log.synced_offset)
            self.log.advance_high_watermark(self.log.synced_offset)

    def sync(self, draw: random.Random) -> None:
        self.begin(draw)
        while any(not done for _, done in self.tickets):
            self.run(draw)
        while self.tickets:
            self.finish(draw)

    def save(self, draw: random.Random) -> None:
        ticket = self.logs.begin_save()
        assert ticket is not None
        ticket.run()
        self.logs.finish_save(ticket)

    def forget(self, draw: random.Random) -> None:
        if draw.randrange(2):
            retention.apply(self.log, self.now_ms)
        else:
            retention.delete_before(self.log, draw.randrange(self.log.high_watermark + 1))
        self.start_max = max(self.start_max, self.log.start_offset)

    def remove(self, draw: random.Random) -> None:
        self.now_ms += 20
        self.log.doomed.schedule(self.now_ms, self.log.settings.file_delete_delay_ms)

    def close(self, draw: random.Random) -> None:
        self.logs.close(clean=True)
        self.promised_end = self.log.end_offset
        start = self.log.start_offset
        self.reopen()
        assert self.log.end_offset == self.promised_end
        assert self.log.start_offset == start
        self.check()

    def crash(self, draw: random.Random) -> None:
        self.disk.failing_syncs = None
        self.disk.crash(draw)
        while True:
            # Recovery is interrupted too, now and then.
            if not draw.randrange(4):
                self.disk.crash_at = self.disk.operations + 1 + draw.randrange(6)
            try:
                self.reopen()
                break
            except Crashed:
                self.disk.crash(draw)
        self.disk.crash_at = None
        self.check()

    def kill(self, draw: random.Random) -> None:
        """The process dies, the machine does not: everything is still there, but not all of it on the platter."""
        end_offset = self.log.end_offset
        self.reopen()
        assert self.log.end_offset == end_offset
        self.check()

    def crash_soon(self, draw: random.Random) -> None:
        self.disk.crash_at = self.disk.operations + 1 + draw.randrange(12)

    STEPS: ClassVar[tuple[Any, ...]] = (
        *[append] * 6,
        *[sync] * 2,
        *[forget, remove, begin, run, finish, repeat, roll, save, close, crash, kill, crash_soon, fill, break_sync],
    )

    def play(self, steps: list[tuple[int, int]]) -> None:
        for number, seed in steps:
            draw = random.Random(seed)
            step = self.STEPS[number]
            try:
                step(self, draw)
            except Crashed:
                self.crash(draw)
            self.check_offsets()
        self.disk.crash_at = None
        self.crash(random.Random(len(steps)))

    # Checks.

    def reopen(self) -> None:
        self.restarts += 1
        self.disk.capacity = None
        self.tickets = []
        self.logs = Logs(self.disk)
        if self.doubtful:
            self.logs.write_anew()
            self.doubtful = False
        if (TOPIC, 0) in self.logs.found:
            self.log = self.logs.load(TOPIC, 0, self.settings, self.now_ms, TOPIC_ID)
        else:
            assert self.promised_end == 0
            self.log = self.logs.create(TOPIC, 0, TOPIC_ID, self.settings, self.now_ms)
        if self.promised_end:
            assert self.logs.directories.read_topic_id((TOPIC, 0)) == TOPIC_ID

    def check_offsets(self) -> None:
        log = self.log
        # What the log says is synced may have been acknowledged.
        self.promised_end = max(self.promised_end, log.synced_offset)
        assert log.failure is None, log.failure
        assert log.start_offset <= log.high_watermark <= log.end_offset
        assert log.saved.recovery_point <= log.synced_offset <= log.end_offset
        assert [s.base_offset for s in log.segments] == sorted({s.base_offset for s in log.segments})

    def check(self) -> None:
        """After a restart."""
        log = self.log
        assert log.end_offset >= self.promised_end
        self.check_offsets()
        assert log.start_offset <= self.start_max
        self.appended = [item for item in self.appended if item[0].base_offset < log.end_offset]
        self.promised_end = log.synced_offset
        self.learn_sequences()
        self.check_bytes()
        self.check_lookups()
        self.check_state()

    def learn_sequences(self) -> None:
        self.sequences = {
            producer_id: max(h.last_sequence for h, _ in self.appended if h.producer_id == producer_id) + 1
            for producer_id in {h.producer_id for h, _ in self.appended if h.producer_id >= 0}
        }

    def check_bytes(self) -> None:
        """Every appended byte from the start to the end, in order, through reads of any size."""
        log = self.log
        kept = [(h, data) for h, data in self.appended if h.last_offset >= log.start_offset]
        assert (kept[-1][0].last_offset + 1 if kept else log.start_offset) == log.end_offset
        for max_bytes in (1, 500, 1 << 20):
            offset, received = log.start_offset, bytearray()
            while (slice_ := log.read(offset, max_bytes)) is not None:
                data = slice_.read()
                assert len(data) == len(slice_)
                *_, (_, last) = iter_headers(data)
                received += data
                offset = last.last_offset + 1
            assert offset == log.end_offset
            assert bytes(received) == b"".join(data for _, data in kept)

    def check_lookups(self) -> None:
        log = self.log
        headers = [h for h, _ in self.appended]
        lasts = [h.last_offset for h in headers]
        for offset in range(log.start_offset, log.end_offset):
            segment, position = log.locate(offset)
            expected = headers[bisect_left(lasts, offset)]
            assert read_header(segment.file.read_at(position, 61)) == expected
        for segment in log.segments:
            timestamps = [batch[4] for batch in segment.batches(0, segment.size)]
            assert segment.load_max_timestamp() == max(timestamps, default=-1)
        records = [
            record
            for h, data in self.appended
            if h.last_offset >= log.start_offset
            for record in read_records(data, decompressed_bytes_max=1 << 20)
            if record.offset >= log.start_offset
        ]
        for timestamp in sorted({record.timestamp for record in records})[::3]:
            expected_record = next(record for record in records if record.timestamp >= timestamp)
            found = at_once(lookup.offset_for_timestamp(log, timestamp))
            assert found is not None
            assert found[:2] == (expected_record.offset, expected_record.timestamp)
        latest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
        found = at_once(lookup.offset_of_max_timestamp(log))
        assert (found and found[:2]) == (latest and (latest.offset, latest.timestamp))

    def check_state(self) -> None:
        log = self.log
        replayed = Producers()
        for h, _ in self.appended:
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
        assert log.producers.state() == replayed.state()
        epochs: dict[int, int] = {}
        for h, _ in self.appended:
            if h.last_offset >= log.start_offset:
                epochs.setdefault(h.partition_leader_epoch, max(h.base_offset, log.start_offset))
        assert [e for e in log.epochs.entries() if e[0] in epochs] == sorted(epochs.items())
