"""Nobody reads what was damaged, and it is found all the same: fetched anew from others, or told to the operator."""

from typing import Any

import pytest
from broker_world import World, batch, code, values
from nodes_together import Cluster, create, made, produce

from skidway.broker.upkeep.scrubbing import FIRST_MS_MAX, SLICE_COST_MIN
from skidway.log import retention
from skidway.log.durability import checkpointing
from skidway.log.scrubbing import SLICE_BYTES, CheckTicket
from skidway.records.batch import HEADER_BYTES

VALUES = [b"a", b"b", b"c", b"d"]
DAMAGED = "checksum is wrong"
OFTEN: dict[str, Any] = {"scrub_interval_ms": 5_000}
MINUTE_MS = 60_000


def rot(cluster: Cluster, number: int, offset: int) -> None:
    """Some bits of a record, long after it was written."""
    segment, position = cluster.copy(number, "t").log.locate(offset)
    cluster.disks[number].corrupt(segment.path(".log"), position + HEADER_BYTES)


def told_of_damage(cluster: Cluster) -> list[int]:
    return [number for number, lines in cluster.told.items() for line in lines if "will be fetched again" in line]


def written(cluster: Cluster, replicas: int = 3) -> int:
    """A topic with a segment for each of its batches; who leads it."""
    first = create(cluster, "t", replicas=replicas, flush="sync", internal_segment_bytes="100")
    for value in VALUES:
        assert produce(cluster, "t", value) == 0
        cluster.pass_time(1_500)
    assert len(cluster.copy(first, "t").log.segments) == len(VALUES)
    return first


def read_all(cluster: Cluster) -> list[bytes | None]:
    """A reply ends where a segment does."""
    client = cluster.client(cluster.until(lambda: cluster.leader("t")))
    found: list[bytes | None] = []
    while True:
        client.fetch({("t", 0): len(found)})
        cluster.settle()
        more = values(client.reply())
        if not more:
            return found
        found += more


@pytest.mark.parametrize("offset", range(len(VALUES)))
@pytest.mark.parametrize("leads", [True, False])
def test_a_copy_that_rots_with_nobody_reading_it_is_fetched_anew(leads: bool, offset: int) -> None:
    cluster = made(**OFTEN)
    first = written(cluster)
    damaged = first if leads else next(number for number in (1, 2, 3) if number != first)
    rot(cluster, damaged, offset)
    cluster.until(lambda: told_of_damage(cluster) == [damaged])
    cluster.until(lambda: cluster.agree("t") and sorted(cluster.copy(first, "t").role.in_sync) == [1, 2, 3])
    leader = cluster.until(lambda: cluster.leader("t"))
    assert (leader == first) is not leads
    assert read_all(cluster) == VALUES
    assert produce(cluster, "t", b"e") == 0
    cluster.pass_time(20_000)
    assert told_of_damage(cluster) == [damaged], "what was fetched anew is sound"
    whole = [number for number, lines in cluster.events.items() for line in lines if "t-0: whole again" in line]
    assert whole == [damaged]


def test_the_last_copy_is_served_on_until_another_has_everything() -> None:
    cluster = made(**OFTEN)
    first = written(cluster, replicas=2)
    (second,) = set(cluster.copy(first, "t").role.replicas) - {first}
    cluster.kill(second)
    cluster.until(lambda: list(cluster.copy(first, "t").role.in_sync) == [first])
    assert produce(cluster, "t", b"e") == 0
    rot(cluster, first, 0)
    log = cluster.copy(first, "t").log
    size = log.size()
    cluster.until(lambda: told_of_damage(cluster) == [first])
    cluster.pass_time(20_000)
    assert (log.size(), log.quarantined, cluster.leader("t")) == (size, False, first), "it is all there is"
    assert produce(cluster, "t", b"f") == 0
    cluster.restart(second)
    cluster.until(cluster.ready)
    cluster.until(lambda: cluster.leader("t") == second)
    cluster.until(lambda: sorted(cluster.copy(second, "t").role.in_sync) == sorted([first, second]))
    assert read_all(cluster) == [*VALUES, b"e", b"f"]
    copies = [cluster.copy(number, "t").log for number in (first, second)]
    assert len({b"".join(each.file.read_at(0, each.size) for each in copy.segments) for copy in copies}) == 1
    assert told_of_damage(cluster) == [first]


class Alone:
    """A single broker with a topic of four segments."""

    def __init__(self, segment_bytes: int = 100, **settings: Any) -> None:
        self.world = World(**{**OFTEN, **settings})
        self.peer = self.world.peer()
        self.peer.create("t", flush="sync", internal_segment_bytes=str(segment_bytes))
        for value in VALUES:
            self.peer.produce("t", batch(value))
            self.world.settle()
            assert code(self.peer.reply()) == 0
            self.world.clock.now_ms += 1_500

    @property
    def log(self) -> Any:
        return self.world.partition("t").log

    def rot(self, offset: int) -> None:
        segment, position = self.log.locate(offset)
        self.world.disk.corrupt(segment.path(".log"), position + HEADER_BYTES)

    def pass_time(self, milliseconds: int) -> None:
        until_ms = self.world.clock.now_ms + milliseconds
        while self.world.clock.now_ms < until_ms:
            self.world.pass_time(10)
            while self.world.held:
                self.world.sync()

    def hold_a_slice(self) -> Any:
        """A worker has it, and it has not run yet."""
        while True:
            self.world.pass_time(10)
            for job in self.world.held:
                if isinstance(job.ticket, CheckTicket) and job.ticket._path.startswith("t-0/"):
                    self.world.held.remove(job)
                    return job
            self.world.sync()

    def told(self, words: str) -> list[str]:
        return [line for line in self.world.events if words in line]

    def stored(self) -> dict[str, bytes]:
        disk = self.world.disk
        return {name: disk.read(f"t-0/{name}") for name in disk.list("t-0") if name.endswith(".log")}


def test_a_single_broker_tells_of_all_that_is_damaged_and_drops_nothing() -> None:
    story = Alone()
    story.rot(0)
    story.rot(2)
    before = story.stored()
    story.pass_time(8_000)
    names = sorted({line.split(" has ")[0] for line in story.told(DAMAGED)})
    assert [name.rsplit(": ", 1)[1] for name in names] == [f"t-0/{offset:020d}.log" for offset in (0, 2)]
    assert all("Nothing was dropped" in line for line in story.told(DAMAGED))
    assert story.stored() == before
    assert story.told("5 segment(s), 2 damaged")
    story.peer.fetch({("t", 0): 3})
    assert values(story.peer.reply()) == [b"d"], "the rest is served"
    story.peer.produce("t", batch(b"e"))
    story.world.settle()
    assert code(story.peer.reply()) == 0


def test_of_damaged_metadata_the_operator_hears_before_the_next_start() -> None:
    story = Alone()
    segment = story.world.node.quorum.log.segments[0]
    story.world.disk.corrupt(segment.path(".log"), HEADER_BYTES)
    story.pass_time(8_000)
    assert story.told("the metadata log: __cluster_metadata-0/00000000000000000000.log has a damaged batch")
    story.peer.produce("t", batch(b"e"))
    story.world.settle()
    assert code(story.peer.reply()) == 0
    assert story.world.node.failure is None


def test_a_sound_broker_says_nothing_but_that_it_looked() -> None:
    story = Alone()
    story.pass_time(14_000)
    assert story.told(DAMAGED) == []
    assert len(story.told("stored batches checked")) == 3


def test_every_segment_is_read_once_in_each_interval() -> None:
    story = Alone()
    opened: list[str] = []
    run = CheckTicket.run

    def noted(ticket: CheckTicket) -> None:
        opened.append(ticket._path)
        run(ticket)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckTicket, "run", noted)
        story.pass_time(10_000)
    segments = [*story.world.node.quorum.log.segments, *story.log.segments]
    assert sorted(opened) == sorted(2 * [segment.path(".log") for segment in segments])


def test_without_an_interval_nothing_is_read() -> None:
    story = Alone(scrub_interval_ms=0)
    story.rot(0)
    story.pass_time(FIRST_MS_MAX + MINUTE_MS)
    assert story.told("damaged") == story.told("checked") == []


def test_it_reads_no_faster_than_it_may() -> None:
    story = Alone(1 << 20, scrub_interval_ms=1_000, scrub_bytes_per_second=SLICE_BYTES)
    for _ in range(10):
        story.peer.produce("t", batch(b"x" * 500_000))
        story.world.settle()
        assert code(story.peer.reply()) == 0
    read_bytes: dict[int, int] = {}
    run = CheckTicket.run

    def noted(ticket: CheckTicket) -> None:
        run(ticket)
        second = story.world.clock.now_ms // 1_000
        read_bytes[second] = read_bytes.get(second, 0) + ticket.bytes_read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckTicket, "run", noted)
        story.pass_time(15_000)
    assert max(read_bytes.values()) <= 2 * SLICE_BYTES, "a second may see the end of one and the begin of another"
    assert SLICE_BYTES * 8 < sum(read_bytes.values()) <= SLICE_BYTES * 16
    assert SLICE_COST_MIN < SLICE_BYTES


# Whatever happens to a partition while a worker reads.


def test_a_topic_that_is_deleted_meanwhile_is_not_damaged() -> None:
    story = Alone()
    job = story.hold_a_slice()
    story.peer.delete("t")
    story.world.settle()
    assert "t-0" not in story.world.disk.list("")
    job.run()
    assert job.ticket.damage is not None
    job.done(None, story.world.clock.now_ms)
    story.pass_time(10_000)
    assert story.told("cannot be read") == []


def test_a_topic_that_takes_the_name_of_a_deleted_one_is_not_taken_for_it() -> None:
    story = Alone()
    job = story.hold_a_slice()
    story.peer.delete("t")
    story.world.settle()
    story.peer.replies()
    story.peer.create("t")
    job.run()
    job.done(None, story.world.clock.now_ms)
    story.pass_time(10_000)
    assert story.told("t-0:") == []


def test_what_retention_takes_meanwhile_is_not_damaged() -> None:
    story = Alone()
    job = story.hold_a_slice()
    retention.delete_before(story.log, 3)
    assert len(story.log.segments) == 1
    checkpoint = checkpointing.begin(story.log)
    assert checkpoint is not None
    checkpoint.run()
    story.log.finish_sync(checkpoint)
    job.run()
    job.done(None, story.world.clock.now_ms)
    story.pass_time(10_000)
    assert story.told("t-0:") == []
    assert story.told("2 segment(s), 0 damaged")


def test_a_broker_that_stops_while_a_slice_is_read_stops() -> None:
    story = Alone()
    story.rot(0)
    job = story.hold_a_slice()
    node = story.world.node
    node.begin_stop(story.world.clock.now_ms)
    story.world.settle()
    job.run()
    job.done(None, story.world.clock.now_ms)
    story.pass_time(10_000)
    assert node.end_turn() == []
    node.close(clean=True)
    assert story.told(DAMAGED) == []
    again = World(story.world.disk, **OFTEN)
    assert again.partition("t").log.end_offset == len(VALUES)


def test_a_disk_that_fails_meanwhile_ends_it() -> None:
    story = Alone()
    story.rot(0)
    job = story.hold_a_slice()
    node = story.world.node
    node.relay.fail("a sync failed")
    job.run()
    job.done(None, story.world.clock.now_ms)
    story.pass_time(20_000)
    assert story.told(DAMAGED) == []


def test_a_slice_that_cannot_be_read_now_is_left_for_the_next_time() -> None:
    story = Alone()
    job = story.hold_a_slice()
    job.done(OSError(24, "too many open files"), story.world.clock.now_ms)
    assert story.told("cannot check ")
    assert story.world.node.failure is None
    story.rot(1)
    story.pass_time(8_000)
    assert story.told(DAMAGED)


def test_the_other_segments_of_a_partition_are_checked_when_one_cannot_be_read() -> None:
    story = Alone()
    story.rot(3)
    for refused in range(2):
        job = story.hold_a_slice()
        assert job.ticket._path == f"t-0/{refused:020d}.log"
        job.done(PermissionError(13, "not yours"), story.world.clock.now_ms)
    while not story.told("stored batches checked"):
        story.pass_time(10)
    assert len(story.told(DAMAGED)) == 1
    assert len(story.told("cannot check ")) == 1, "one line says it for all of a partition's segments"
    assert story.told("t-0: cannot check t-0/00000000000000000000.log")
    assert story.told("5 segment(s), 1 damaged, 2 could not be read")


def test_a_topic_that_is_deleted_while_it_cannot_be_read_is_not_told_of() -> None:
    story = Alone()
    job = story.hold_a_slice()
    story.peer.delete("t")
    story.world.settle()
    job.done(PermissionError(13, "not yours"), story.world.clock.now_ms)
    while not story.told("stored batches checked"):
        story.pass_time(10)
    assert story.told("cannot check") == []


def test_a_slow_disk_is_left_to_others_for_as_long_as_it_took() -> None:
    story = Alone()
    job = story.hold_a_slice()
    story.world.clock.now_ms += 3_000
    job.run()
    job.done(None, story.world.clock.now_ms)
    story.world.pass_time(2_900)
    assert story.world.held == []
    story.world.pass_time(100)
    (following,) = story.world.held
    assert isinstance(following.ticket, CheckTicket)


def test_many_small_logs_are_checked_over_many_turns() -> None:
    world = World(**OFTEN)
    peer = world.peer()
    peer.create("wide", partitions=1_200, flush="os")
    peer.produce("wide", batch(b"x"), index=1_000)
    world.settle()
    checkpoint = checkpointing.begin(world.partition("wide", 1_000).log)
    assert checkpoint is not None
    checkpoint.run()
    world.partition("wide", 1_000).log.finish_sync(checkpoint)
    turns = 0
    while not world.held:
        world.pass_time(1_000 if turns == 0 else 1)
        turns += 1
    assert turns > 3
    world.settle()
