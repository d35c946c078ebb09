"""A replica's log on a disk that forgets: it follows, leads, is cut and begins anew, and power is lost anywhere.

After every restart it is a beginning of what was appended to it, and indexes, epochs and producers are those of a
replay (see `log_world.World`). A log that was cut never shows its old tail again.
"""

import random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_world import TOPIC, World

from skidway.errors import StorageError
from skidway.log import following, truncation
from skidway.log.durability import checkpointing
from skidway.log.epochs import LeaderEpochs
from skidway.log.producers import Producers
from skidway.records.batch import BatchHeader, read_header, stamp
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import Crashed


class ReplicaWorld(World):
    def __init__(self, seed: int, *, reckless: bool = False) -> None:
        super().__init__(seed)
        self.reckless = reckless
        """Whether it may be cut below its watermark, as after an unclean election."""
        self.leader_epoch = 0
        self.committed_max = 0
        self.restarting: int | None = None

    @property
    def epoch(self) -> int:
        return self.leader_epoch

    # Steps.

    def lead(self, draw: random.Random) -> None:
        self.leader_epoch += 1
        self.log.begin_epoch(self.leader_epoch)
        assert self.log.end_offset_for_epoch(self.leader_epoch) == (self.leader_epoch, self.log.end_offset)

    def fetch(self, draw: random.Random) -> None:
        """Batches of a leader, some of a new epoch, some with offsets missing between them."""
        self.now_ms += draw.randrange(5)
        base_offset = self.log.end_offset
        sequences = dict(self.sequences)
        sent: list[bytes] = []
        for _ in range(draw.randrange(1, 7)):
            base_offset += draw.choice([0, 0, 0, draw.randrange(5)])
            self.leader_epoch += draw.randrange(8) == 0
            producer_id, count = draw.choice([-1, 7, 8]), draw.randrange(1, 4)
            sequence = sequences.get(producer_id, 0) if producer_id >= 0 else -1
            value = draw.randbytes(draw.randrange(120))
            batch = build_batch(
                [Record(i, self.now_ms + draw.randrange(-20, 20), b"k", value, []) for i in range(count)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
            stamp(batch, base_offset, self.leader_epoch)
            if producer_id >= 0:
                sequences[producer_id] = sequence + count
            base_offset += count
            sent.append(bytes(batch))
        if draw.randrange(3) == 0:
            self.disk.capacity = self.disk.used() + draw.randrange(800)
        self.appended += [(read_header(batch), batch) for batch in sent]
        try:
            appended = following.append(self.log, b"".join(sent), self.now_ms)
            assert (appended.end_offset, appended.count) == (base_offset, len(sent))
        except StorageError:
            assert self.disk.capacity is not None
        self.disk.capacity = None
        self.keep_below(self.log.end_offset)

    def cut(self, draw: random.Random) -> None:
        """Its leader does not have its tail."""
        log = self.log
        lowest = draw.randrange(log.high_watermark + 1) if self.reckless else self.committed_max
        offset = lowest + draw.randrange(log.end_offset - lowest + 2)
        ends = [h.last_offset + 1 for h, _ in self.appended if h.last_offset < offset]
        expected = max([end for end in [*ends, log.segments[0].base_offset] if end >= log.start_offset], default=None)
        if offset < log.start_offset or expected is None:
            self.restart_at(min(offset, log.start_offset), offset)
            return
        expected = min(expected, log.end_offset)
        self.promised_end = min(self.promised_end, expected)
        self.trouble(draw)
        try:
            truncation.truncate(log, offset, self.now_ms)
        except StorageError:
            self.on_refused(draw)
            return
        self.disk.capacity = self.disk.failing_syncs = None
        assert log.end_offset == expected
        self.committed_max = min(self.committed_max, expected)
        self.keep_below(expected)
        self.check_now()

    def begin_anew(self, draw: random.Random) -> None:
        """Its leader begins above its end."""
        offset = self.log.end_offset + draw.randrange(20)
        if self.reckless and draw.randrange(2):
            offset = draw.randrange(offset + 1)
        self.trouble(draw)
        self.restart_at(offset, None, draw)

    def restart_at(self, offset: int, truncate_to: int | None, draw: random.Random | None = None) -> None:
        log = self.log
        self.restarting = offset
        try:
            if truncate_to is None:
                truncation.restart(log, offset, self.now_ms)
            else:
                truncation.truncate(log, truncate_to, self.now_ms)
        except StorageError:
            if log.failure is None:
                self.restarting = None
            self.on_refused(draw or random.Random(0))
            return
        self.disk.capacity = self.disk.failing_syncs = None
        assert (log.start_offset, log.high_watermark, log.synced_offset, log.end_offset) == (offset,) * 4
        self.on_restarted(offset)
        self.check_now()

    def on_restarted(self, offset: int) -> None:
        self.restarting = None
        self.appended = []
        self.sequences = {}
        self.promised_end = offset
        self.committed_max = offset
        self.start_max = max(self.start_max, offset)

    def trouble(self, draw: random.Random) -> None:
        kind = draw.randrange(12)
        if kind == 0:
            self.disk.capacity = self.disk.used() + draw.randrange(200)
        elif kind == 1:
            self.disk.failing_syncs = {self.disk.syncs + draw.randrange(8)}

    def on_refused(self, draw: random.Random) -> None:
        self.disk.capacity = self.disk.failing_syncs = None
        if self.log.failure is not None:
            self.restart_after_failure(draw)
        else:
            self.check_now()

    def checkpoint(self, draw: random.Random) -> None:
        ticket = checkpointing.begin(self.log)
        if ticket is not None:
            ticket.run()
            self.tickets.append((ticket, True))
        while any(done for _, done in self.tickets):
            self.finish(draw)

    def finish(self, draw: random.Random) -> None:
        done = [number for number, (_, done) in enumerate(self.tickets) if done]
        if not done:
            return
        ticket, _ = self.tickets.pop(draw.choice(done))
        void = ticket.generation != self.log.unsynced.generation
        self.log.finish_sync(ticket)
        assert void or self.log.synced_offset >= ticket.offset
        self.promised_end = max(self.promised_end, self.log.synced_offset)
        ends = [h.last_offset + 1 for h, _ in self.appended if h.last_offset < self.log.synced_offset]
        if ends:
            self.log.advance_high_watermark(draw.choice(ends[-4:]))
        self.committed_max = max(self.committed_max, self.log.high_watermark)

    STEPS: ClassVar[tuple[Any, ...]] = (
        *[step for step in World.STEPS if step is not World.finish],
        *[fetch] * 6,
        *[cut] * 3,
        *[finish, lead, lead, begin_anew, World.begin, World.run, World.save],
    )

    # Checks.

    def keep_below(self, end_offset: int) -> None:
        self.appended = [item for item in self.appended if item[0].base_offset < end_offset]
        self.learn_sequences()

    def reopen(self) -> None:
        super().reopen()
        self.log.begin_at(self.logs.offsets.watermarks.get((TOPIC, 0), 0))
        assert self.log.high_watermark <= max(self.committed_max, self.log.start_offset)
        self.committed_max = max(self.committed_max, self.log.high_watermark)

    def check(self) -> None:
        if self.restarting is not None:
            offset = self.restarting
            if (self.log.start_offset, self.log.end_offset, self.log.size()) == (offset, offset, 0):
                self.on_restarted(offset)
            self.restarting = None
        self.check_with_all_committed(super().check)

    def check_now(self) -> None:
        """Without a restart."""
        self.check_offsets()
        self.check_with_all_committed(self.check_contents)

    def check_contents(self) -> None:
        self.check_bytes()
        self.check_lookups()
        self.check_state()

    def check_with_all_committed(self, check: "object") -> None:
        watermark = self.log.high_watermark
        self.log.advance_high_watermark(self.log.end_offset)
        check()  # type: ignore[operator]
        self.log.begin_at(watermark)
        assert self.log.high_watermark == watermark

    def check_state(self) -> None:
        log = self.log
        if self.reckless and log.producers.state() != replay(self.appended):
            # The snapshots that remembered deleted batches vouched for a tail that is gone, or all but an old one did.
            first = log.segments[0].base_offset
            remembered = [item for item in self.appended if item[0].base_offset < first]
            there = [item for item in self.appended if item[0].base_offset >= first]
            beginnings = [remembered[:count] + there for count in range(len(remembered))]
            self.appended = next((items for items in beginnings if log.producers.state() == replay(items)), there)
            self.learn_sequences()
        assert log.producers.state() == replay(self.appended)
        expected, known = LeaderEpochs(), LeaderEpochs(log.epochs.entries())
        for h, _ in self.appended:
            expected.assign(h.partition_leader_epoch, h.base_offset)
        expected.forget_before(log.start_offset)
        known.forget_before(log.start_offset)

        def first_batches(epochs: LeaderEpochs) -> list[tuple[int, int]]:
            """An epoch may begin before its first batch, where offsets are missing, or have none."""
            headers = [h for h, _ in self.appended]
            firsts = LeaderEpochs()
            for epoch, start in epochs.entries():
                firsts.assign(epoch, next((h.base_offset for h in headers if h.last_offset >= start), log.end_offset))
            return [entry for entry in firsts.entries() if entry[1] < log.end_offset]

        assert first_batches(known) == first_batches(expected)


def replay(appended: list[tuple[BatchHeader, bytes]]) -> dict[int, tuple[object, ...]]:
    producers = Producers()
    for h, _ in appended:
        if h.producer_id >= 0:
            producers.record(
                h.producer_id,
                h.producer_epoch,
                h.base_sequence,
                h.base_offset,
                h.last_offset_delta,
                h.max_timestamp,
                h.attributes,
                0,
            )
    return producers.state()


STEPS = st.lists(st.tuples(st.integers(0, len(ReplicaWorld.STEPS) - 1), st.integers(0, 2**16)), min_size=1, max_size=50)


@pytest.mark.parametrize("reckless", [False, True])
@settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 50), steps=STEPS)
def test_a_replica_is_a_beginning_of_what_it_took(reckless: bool, seed: int, steps: list[tuple[int, int]]) -> None:
    ReplicaWorld(seed, reckless=reckless).play(steps)


@pytest.mark.parametrize("seed", range(120))
def test_long_lives_of_replicas(seed: int) -> None:
    draw = random.Random(seed)
    steps = [(draw.randrange(len(ReplicaWorld.STEPS)), draw.randrange(2**32)) for _ in range(150)]
    ReplicaWorld(seed, reckless=seed % 2 == 1).play(steps)


@pytest.mark.parametrize("seed", range(16))
def test_a_truncation_may_be_interrupted_anywhere(seed: int) -> None:
    """A checkpoint is under way while the log is cut or begins anew, and runs before, between or after."""
    for stop in range(1, 46):
        draw = random.Random(seed)
        world = ReplicaWorld(seed)
        world.settings.segment_bytes = 700
        for act in (world.fetch, world.sync, world.fetch, world.checkpoint, world.save, world.fetch, world.checkpoint):
            act(draw)
        if seed % 2:
            world.forget(draw)
            world.checkpoint(draw)
        world.fetch(draw)
        ticket = checkpointing.begin(world.log)
        if ticket is not None:
            world.tickets.append((ticket, False))
        if seed % 3 == 0:
            world.run(draw)
        world.fetch(draw)
        begin = world.begin_anew if seed % 4 == 3 else world.cut
        world.disk.crash_at = world.disk.operations + stop
        try:
            for act in (begin, world.fetch, world.run, world.roll, world.fetch, world.finish, world.save):
                act(draw)
        except Crashed:
            pass
        world.crash(draw)
        for act in (world.fetch, world.sync, world.cut, world.crash):
            act(draw)
