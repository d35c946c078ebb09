"""Two replicas on disks that forget, one leading, one following, taking turns: what is committed is in both for good.

The rules between them are Kafka's and as simple as they come: a follower is told where its last epoch ended, cuts off
what its leader does not have, and fetches. Committed is what every replica in sync has on disk.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skidway.errors import OffsetOutOfRange
from skidway.log import following, retention, truncation
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.records.batch import iter_headers, read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import Crashed, SimDisk

TOPIC, TOPIC_ID = "orders", bytes(range(16))


class Replica:
    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.disk = SimDisk()
        self.open(0)

    def open(self, now_ms: int) -> None:
        self.logs = Logs(self.disk)
        self.log: Log = self.logs.load_or_create(TOPIC, 0, TOPIC_ID, self.settings, now_ms)
        assert not self.log.quarantined, self.log.failure
        self.log.is_flushed = True
        self.log.begin_at(self.logs.offsets.watermarks.get((TOPIC, 0), 0))

    def batches(self) -> dict[int, bytes]:
        log, found = self.log, {}
        offset = log.start_offset
        while (slice_ := log.read(offset, 500, Bound.END)) is not None:
            data = slice_.read()
            for position, header in iter_headers(data):
                found[header.base_offset] = data[position : position + header.size]
                offset = header.last_offset + 1
        assert offset == log.end_offset
        return found


class Pair:
    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.settings = LogSettings(
            segment_bytes=draw.choice([500, 2000]), index_interval_bytes=draw.choice([0, 300]), file_delete_delay_ms=5
        )
        self.now_ms = 1_000_000
        self.replicas = [Replica(self.settings), Replica(self.settings)]
        self.leading = 0
        self.epoch = 0
        self.sequence = 0
        self.alone = False
        """The follower is not in sync: the leader commits without it, and must not lose its place."""
        self.committed: dict[int, bytes] = {}
        self.committed_end = 0
        self.cuts = self.restarts = 0
        self.elect()

    @property
    def leader(self) -> Log:
        return self.replicas[self.leading].log

    @property
    def follower(self) -> Log:
        return self.replicas[1 - self.leading].log

    def elect(self) -> None:
        self.epoch += 1
        self.leader.begin_epoch(self.epoch)

    # Steps.

    def produce(self, draw: random.Random) -> None:
        for _ in range(draw.randrange(1, 5)):
            count = draw.randrange(1, 4)
            self.now_ms += draw.randrange(10)
            records = [Record(i, self.now_ms + i, b"k", draw.randbytes(draw.randrange(100)), []) for i in range(count)]
            known = self.leader.producers.entries.get(7)
            batch = build_batch(
                records, producer_id=7, producer_epoch=0, base_sequence=known.last_sequence + 1 if known else 0
            )
            header = read_header(batch)
            assert self.leader.producers.check(header) is None
            self.leader.append(batch, header, self.epoch, self.now_ms)

    def fetch(self, draw: random.Random) -> None:
        leader, follower = self.leader, self.follower
        if follower.end_offset < leader.start_offset:
            assert self.alone
            self.restarts += 1
            truncation.restart(follower, leader.start_offset, self.now_ms)
        while (cut := self.diverging()) is not None:
            assert cut >= self.committed_end or self.alone
            self.cuts += cut < follower.end_offset
            truncation.truncate(follower, cut, self.now_ms)
        try:
            slice_ = leader.read(follower.end_offset, draw.randrange(1, 2000), Bound.END)
        except OffsetOutOfRange:
            return
        if slice_ is not None:
            following.append(follower, slice_.read(), self.now_ms)
        follower.advance_high_watermark(min(leader.high_watermark, follower.end_offset))
        if leader.start_offset > follower.start_offset:
            retention.delete_before(follower, min(leader.start_offset, follower.high_watermark))

    def diverging(self) -> int | None:
        """Where the follower must be cut before it may go on."""
        last_epoch = self.follower.epochs.latest
        if last_epoch < 0:
            return None
        epoch, end_offset = self.leader.end_offset_for_epoch(last_epoch)
        if epoch == last_epoch and end_offset >= self.follower.end_offset:
            return None
        if epoch < 0:
            return None
        own_epoch, own_end = self.follower.end_offset_for_epoch(epoch)
        cut = min(own_end, end_offset) if own_epoch == epoch else own_end
        before = self.follower.epochs.entries(), self.follower.end_offset
        cut = max(cut, self.follower.start_offset)
        assert cut < before[1] or before[0][-1][1] >= before[1], "each step takes something away"
        return cut

    def sync(self, draw: random.Random) -> None:
        for log in (self.leader, self.follower):
            ticket = checkpointing.begin(log) if draw.randrange(3) == 0 else log.begin_sync()
            if ticket is not None:
                ticket.run()
                log.finish_sync(ticket)
        self.commit()

    def commit(self) -> None:
        leader, follower = self.leader, self.follower
        if self.alone and follower.synced_offset >= max(self.committed_end, leader.end_offset) and not self.differ():
            self.alone = False
        end_offset = leader.synced_offset if self.alone else min(leader.synced_offset, follower.synced_offset)
        if self.differ() and not self.alone:
            return  # the follower has not heard of its leader yet
        if end_offset > self.committed_end:
            for base_offset, batch in self.replicas[self.leading].batches().items():
                if base_offset < end_offset:
                    self.committed.setdefault(base_offset, batch)
            self.committed_end = end_offset
        leader.advance_high_watermark(self.committed_end)

    def differ(self) -> bool:
        return self.follower.end_offset < self.leader.start_offset or self.diverging() is not None

    def save(self, draw: random.Random) -> None:
        for replica in self.replicas:
            ticket = replica.logs.begin_save()
            assert ticket is not None
            ticket.run()
            replica.logs.finish_save(ticket)

    def forget(self, draw: random.Random) -> None:
        log = self.leader
        if draw.randrange(2):
            retention.delete_before(log, draw.randrange(log.start_offset, log.high_watermark + 1))

    def shrink(self, draw: random.Random) -> None:
        self.alone = True

    def change(self, draw: random.Random) -> None:
        if not self.alone:
            self.leading = draw.randrange(2)
        self.elect()

    def crash(self, draw: random.Random) -> None:
        self.restart(draw.randrange(2), draw)

    def restart(self, number: int, draw: random.Random) -> None:
        replica = self.replicas[number]
        replica.disk.crash(draw)
        while True:
            if draw.randrange(3) == 0:
                replica.disk.crash_at = replica.disk.operations + 1 + draw.randrange(6)
            try:
                replica.open(self.now_ms)
                break
            except Crashed:
                replica.disk.crash(draw)
        replica.disk.crash_at = None
        if number == self.leading:
            self.change(draw)

    def crash_soon(self, draw: random.Random) -> None:
        disk = draw.choice(self.replicas).disk
        disk.crash_at = disk.operations + 1 + draw.randrange(25)

    STEPS = (
        *[produce] * 4,
        *[fetch] * 6,
        *[sync] * 2,
        *[save, forget, shrink, change, change, crash, crash_soon, crash_soon],
    )

    def play(self, steps: list[tuple[int, int]]) -> None:
        for number, seed in steps:
            draw = random.Random(seed)
            try:
                self.STEPS[number](self, draw)
            except Crashed:
                for index, replica in enumerate(self.replicas):
                    if replica.disk.crash_at is not None and replica.disk.operations >= replica.disk.crash_at:
                        self.restart(index, draw)
            self.check()
        self.settle()

    # Checks.

    def check(self) -> None:
        in_sync = [self.leading] if self.alone else [0, 1]
        for number in in_sync:
            replica = self.replicas[number]
            assert replica.log.end_offset >= self.committed_end
            held = replica.batches()
            for base_offset, batch in self.committed.items():
                last_offset = read_header(batch).last_offset
                if last_offset >= replica.log.start_offset and base_offset < self.committed_end:
                    assert held[base_offset] == batch
            assert replica.log.high_watermark <= max(self.committed_end, replica.log.start_offset)

    def settle(self) -> None:
        """Left in peace, both come to hold the same."""
        draw = random.Random(0)
        for replica in self.replicas:
            replica.disk.crash_at = None
        while self.differ() or self.follower.end_offset < self.leader.end_offset:
            self.fetch(draw)
        self.sync(draw)
        self.fetch(draw)
        first, second = (replica.batches() for replica in self.replicas)
        for base_offset in first.keys() & second.keys():
            assert first[base_offset] == second[base_offset]
        start_offset = max(self.leader.start_offset, self.follower.start_offset)
        later = [{base for base in found if base >= start_offset} for found in (first, second)]
        assert later[0] == later[1]
        assert self.leader.end_offset == self.follower.end_offset == self.committed_end
        states = [replica.log.producers.entries.get(7) for replica in self.replicas]
        if all(states):
            assert len({state.batches[-1] for state in states if state}) == 1


STEPS = st.lists(st.tuples(st.integers(0, len(Pair.STEPS) - 1), st.integers(0, 2**16)), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 50), steps=STEPS)
def test_what_is_committed_is_in_both(seed: int, steps: list[tuple[int, int]]) -> None:
    Pair(seed).play(steps)


@pytest.mark.parametrize("seed", range(60))
def test_long_lives_of_a_pair(seed: int) -> None:
    draw = random.Random(seed)
    Pair(seed).play([(draw.randrange(len(Pair.STEPS)), draw.randrange(2**32)) for _ in range(200)])


def test_the_pairs_do_disagree() -> None:
    cuts = restarts = 0
    for seed in range(12):
        draw = random.Random(seed)
        pair = Pair(seed)
        pair.play([(draw.randrange(len(Pair.STEPS)), draw.randrange(2**32)) for _ in range(200)])
        cuts += pair.cuts
        restarts += pair.restarts
    assert cuts > 10
    assert restarts > 3
