"""What happens to partitions while they are in use: deleted, made anew, reconfigured, on disks that fail."""

import errno
from random import Random
from typing import Any

import pytest
from broker_world import Peer, World, batch, code, part, values
from msgspec.structs import replace

from skidway.broker.identity import WrongDataDirectory
from skidway.broker.partitions.refusals import KEPT_MS
from skidway.broker.upkeep.syncs import SyncJob
from skidway.errors import ErrorCode
from skidway.limits import Limits
from skidway.log.durability.checkpoints import DAMAGED
from skidway.runtime.jobs import Job
from skidway.sim.world.disk import SimDisk

UNKNOWN_TOPIC = 3
STORAGE_ERROR = 56


def read(world: World, topic: str, offset: int = 0) -> list[bytes | None]:
    peer = world.peer()
    peer.fetch({(topic, 0): offset})
    return values(peer.reply())


def directories(world: World) -> list[str]:
    return [name for name in world.disk.list("") if "." not in name or name.endswith(("-delete", "-stray"))]


def test_a_poll_is_told_when_its_topic_goes() -> None:
    world = World()
    owner, reader = world.peer(), world.peer()
    owner.create("t", flush="os")
    reader.fetch({("t", 0): 0}, max_wait_ms=10_000)
    owner.delete("t")
    world.settle()
    assert owner.reply().responses[0].error_code == 0
    (topic,) = reader.reply().responses
    assert topic.partitions[0].error_code == UNKNOWN_TOPIC
    assert len(world.node.waiting.polls) == 0


def of_metadata(world: World, job: Job) -> bool:
    return isinstance(job, SyncJob) and job.hosted is world.node.quorum


def test_a_write_that_waits_is_told_when_its_topic_goes() -> None:
    world = World()
    owner, writer = world.peer(), world.peer()
    owner.create("t", flush="sync")
    writer.produce("t", batch(b"x"))
    owner.delete("t")
    world.end_turn()
    metadata = [job for job in world.held if of_metadata(world, job)]
    others = [job for job in world.held if not of_metadata(world, job)]
    world.held = metadata  # the deletion is committed before the write is synced
    world.sync()
    assert code(writer.reply()) == UNKNOWN_TOPIC
    world.held += others
    world.settle()
    assert writer.replies() == []


def test_a_sync_of_a_deleted_topic_never_touches_the_one_that_took_its_name() -> None:
    """The worker is still in the old directory: the new topic has to wait for it, and then starts empty."""
    world = World()
    owner = world.peer()
    owner.create("t", flush="sync")
    old = world.partition("t")
    world.peer().produce("t", batch(b"old"), acks=1)
    world.end_turn()
    (job,) = world.held
    assert isinstance(job, SyncJob)
    assert job.hosted is old
    world.held = []
    assert owner.delete("t")
    world.settle()
    assert owner.reply().responses[0].error_code == 0
    assert "t-0" in directories(world)

    owner.send("CreateTopics", topics=[part("CreateTopics", "CreatableTopic", "t", 1, 1)], timeout_ms=1000)
    world.settle()
    assert owner.reply().topics[0].error_code == 0
    writer = world.peer()
    writer.produce("t", batch(b"early"), acks=1)
    assert code(writer.reply()) != 0  # not there yet, and the client comes again

    job.run()
    job.done(None, world.clock.now_ms)
    world.settle()
    assert world.partition("t") is not old
    writer.produce("t", batch(b"new"))
    world.settle()
    assert code(writer.reply()) == 0
    assert read(world, "t") == [b"new"]
    assert [name for name in directories(world) if name.startswith("t-0")] != ["t-0"]  # the old one, renamed


def test_deleted_files_go_after_their_delay() -> None:
    world = World()
    owner = world.peer()
    owner.create("t", flush="os", file_delete_delay_ms="1000")
    owner.delete("t")
    world.settle()
    assert any(name.endswith("-delete") for name in directories(world))
    world.clock.now_ms += 1001
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.settle()
    assert not any(name.endswith("-delete") for name in directories(world))


def test_many_partitions_are_opened_over_many_turns() -> None:
    world = World()
    owner, bystander = world.peer(), world.peer()
    world.clock.per_look_ms = 5
    owner.send("CreateTopics", topics=[part("CreateTopics", "CreatableTopic", "wide", 50, 1)], timeout_ms=1000)
    world.end_turn()
    world.sync()
    turns = 0
    while not (answered := owner.replies()):
        turns += 1
        bystander.send("Metadata", topics=[])
        assert len(bystander.replies()) == 1
        world.end_turn()
    assert turns > 5
    assert answered[0][1].topics[0].error_code == 0
    assert len(world.node.partitions) == 50

    owner.delete("wide")
    world.end_turn()
    world.sync()
    assert len(world.node.partitions) == 0
    turns = 0
    while not owner.replies():
        turns += 1
        world.end_turn()
    assert turns > 5
    assert world.node.rooms.hosting.lives.removing == []


def test_a_topic_deleted_before_all_of_it_was_opened() -> None:
    world = World()
    owner = world.peer()
    world.clock.per_look_ms = 5
    owner.send("CreateTopics", topics=[part("CreateTopics", "CreatableTopic", "wide", 50, 1)], timeout_ms=1000)
    world.end_turn()
    world.sync()
    owner.delete("wide")
    world.end_turn()
    world.sync()
    for _ in range(100):
        world.end_turn()
    assert len(owner.replies()) == 2
    assert len(world.node.partitions) == 0
    assert world.node.rooms.hosting.lives.missing == {}


# --- settings at run time ---


def test_flush_can_be_changed_at_run_time() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"a"))
    assert code(peer.reply()) == 0  # needs no sync
    assert peer.alter("t", flush="sync") == 0
    peer.produce("t", batch(b"b"))
    world.end_turn()
    assert peer.replies() == []
    assert read(world, "t") == [b"a"]
    world.settle()
    assert code(peer.reply()) == 0
    peer.produce("t", batch(b"c"))  # waits for its sync while the topic becomes flush=os
    world.end_turn()
    held, world.held = world.held, []
    other = world.peer()
    assert other.alter("t", flush="os") == 0
    assert code(peer.reply()) == 0
    assert read(world, "t") == [b"a", b"b", b"c"]
    world.held = held
    world.settle()
    assert world.partition("t").log.high_watermark == 3


def test_a_smaller_limit_for_messages_holds_at_once() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"x" * 5000))
    assert code(peer.reply()) == 0
    assert peer.alter("t", max_message_bytes="1000") == 0
    peer.produce("t", batch(b"x" * 5000))
    assert code(peer.reply()) == 10


def test_retention_follows_its_setting() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os", segment_bytes="1048576", retention_ms="-1")
    for _ in range(4):
        peer.produce("t", batch(b"x" * 600_000))
    peer.replies()
    world.clock.now_ms += 10_000_000
    run_retention(world)
    assert world.partition("t").log.start_offset == 0
    assert peer.alter("t", retention_bytes="700000") == 0
    run_retention(world)
    assert world.partition("t").log.start_offset > 0
    assert any("the log now starts at" in event for event in world.events)


def run_retention(world: World) -> None:
    world.clock.now_ms += world.node.settings.retention_check_ms
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.settle()


def test_sizes_of_directories() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", 2, flush="os")
    data = batch(b"x" * 1000)
    peer.produce("t", data, index=1)
    peer.replies()
    (result,) = peer.call("DescribeLogDirs", topics=None).results
    (topic,) = result.topics
    assert {p.partition_index: p.partition_size for p in topic.partitions} == {0: 0, 1: len(data)}
    asked = [part("DescribeLogDirs", "DescribableLogDirTopic", "t", [1, 9]) for _ in range(2)]
    (result,) = peer.call("DescribeLogDirs", topics=asked).results
    assert [p.partition_index for p in result.topics[0].partitions] == [1]


# --- the data directory ---


def test_logs_that_no_topic_knows_are_set_aside_with_their_data() -> None:
    world = World()
    world.peer().create("kept", flush="os")
    world.node.close(clean=True)
    world.disk.make_directory("lost-0")
    file = world.disk.open("lost-0/00000000000000000000.log", create=True)
    file.append(batch(b"precious"))
    again = World(world.disk)
    stray = [name for name in again.disk.list("") if name.startswith("lost-0") and name.endswith("-stray")]
    assert len(stray) == 1
    assert again.disk.size(f"{stray[0]}/00000000000000000000.log") > 0
    assert any("the broker keeps it as" in event for event in again.events)
    assert {partition.topic for partition in again.node.partitions} == {"kept"}


def test_the_data_of_another_node_is_refused() -> None:
    world = World()
    world.node.close(clean=True)
    with pytest.raises(WrongDataDirectory, match="belongs to node 1, this is node 2"):
        World(world.disk, node_id=2)
    with pytest.raises(WrongDataDirectory, match="belongs to cluster"):
        World(world.disk, cluster_id="another")
    assert World(world.disk, cluster_id=world.node.cluster_id).node.cluster_id == world.node.cluster_id


def test_what_was_acknowledged_is_there_after_power_loss() -> None:
    for seed in range(20):
        world = World()
        peer = world.peer()
        peer.create("t", flush="sync")
        for number in range(5):
            peer.produce("t", batch(b"%d" % number))
            world.settle()
        peer.produce("t", batch(b"unsure"), acks=1)
        world.disk.crash(Random(seed))
        found = read(World(world.disk), "t")
        assert found[:5] == [b"0", b"1", b"2", b"3", b"4"]
        assert found[5:] in ([], [b"unsure"])


# --- disks that fail ---


def test_a_failed_sync_is_final_but_reads_go_on() -> None:
    world = World()
    peer, waiting = world.peer(), world.peer()
    peer.create("t", flush="sync")
    peer.create("other", flush="os")
    peer.produce("t", batch(b"safe"))
    world.settle()
    peer.replies()
    waiting.produce("t", batch(b"unsafe"))
    world.end_turn()
    (job,) = world.held
    world.held = []
    job.done(OSError(errno.EIO, "broken"), world.clock.now_ms)
    world.end_turn()
    assert code(waiting.reply()) == STORAGE_ERROR
    assert world.node.failure is not None
    for topic in ("t", "other"):
        peer.produce(topic, batch(b"more"))
        assert code(peer.reply()) == STORAGE_ERROR
    topic = part("CreateTopics", "CreatableTopic", "new", 1, 1)
    peer.send("CreateTopics", topics=[topic], timeout_ms=1000)
    world.end_turn()
    assert peer.reply().topics[0].error_code == STORAGE_ERROR
    assert read(world, "t") == [b"safe"]
    world.node.close(clean=True)
    assert not world.disk.exists(".kafka_cleanshutdown")
    assert sum("accepts no more writes" in event for event in world.events) == 1


def new_topic(peer: Peer, name: str) -> Any:
    topic = part("CreateTopics", "CreatableTopic", name, 1, 1)
    return peer.call("CreateTopics", topics=[topic], timeout_ms=1000).topics[0].error_code


def test_a_full_disk_refuses_changes_and_takes_them_again_when_there_is_room() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    peer.produce("t", batch(b"before"))
    world.settle()
    peer.replies()
    world.disk.capacity = world.disk.used()
    assert new_topic(peer, "refused") == STORAGE_ERROR
    assert "refused" not in world.node.image.topics
    peer.produce("t", batch(b"no room"))
    assert code(peer.reply()) == STORAGE_ERROR
    assert read(world, "t") == [b"before"]
    world.disk.capacity = None
    assert new_topic(peer, "accepted") == 0
    peer.produce("t", batch(b"after"))
    world.settle()
    assert code(peer.reply()) == 0
    assert read(world, "t") == [b"before", b"after"]
    again = World(world.disk)
    assert set(again.node.image.topics) == {"t", "accepted"}


def test_a_batch_behind_one_that_found_no_room_is_refused_like_it() -> None:
    """Out of order is what a producer takes for a loss; here it only has to send both again."""
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    large, small = (
        batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence, value in enumerate((bytes(1000), b"small"))
    )
    world.disk.capacity = world.disk.used() + 500
    for one in (large, small):
        peer.produce("t", one)
        assert code(peer.reply()) == STORAGE_ERROR
    world.disk.capacity = None
    for one in (large, small):
        peer.produce("t", one)
        assert code(peer.reply()) == 0
    peer.produce("t", batch(b"skips", producer_id=7, producer_epoch=0, base_sequence=5))
    assert code(peer.reply()) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert read(world, "t") == [bytes(1000), b"small"]


def test_a_refused_batch_of_a_forgotten_producer_is_taken_when_there_is_room() -> None:
    """It was silent for days, so any of its sequences may be the first: the one that was refused, not those behind it.
    Others that were forgotten have nothing to do with it."""
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    large, small = (
        batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence, value in ((50, bytes(1000)), (51, b"small"))
    )
    world.disk.capacity = world.disk.used() + 500
    for one in (large, small):
        peer.produce("t", one)
        assert code(peer.reply()) == STORAGE_ERROR
    world.disk.capacity = None
    peer.produce("t", batch(b"other", producer_id=8, producer_epoch=0, base_sequence=90))
    assert code(peer.reply()) == 0
    for one, expected in ((small, STORAGE_ERROR), (large, 0), (small, 0)):
        peer.produce("t", one)
        assert code(peer.reply()) == expected
    assert read(world, "t") == [b"other", bytes(1000), b"small"]


@pytest.mark.parametrize("story", ["broken", "lower", "long ago", "a duplicate"])
def test_a_refused_batch_holds_back_only_what_comes_behind_it(story: str) -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")

    def sent(sequence: int, value: bytes = b"small", *, broken: bool = False) -> int:
        one = bytearray(batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence))
        if broken:
            one[-1] ^= 1
        peer.produce("t", bytes(one))
        return code(peer.reply())

    if story == "a duplicate":
        assert sent(50) == 0
    world.disk.capacity = world.disk.used() + (500 if story != "broken" else 0)
    refused = sent(50, bytes(1000), broken=story == "broken")
    world.disk.capacity = None
    if story == "broken":
        assert refused != 0
        assert sent(60) == 0, "nobody can speak for another producer with what is no batch"
    elif story == "lower":
        assert (refused, sent(60), sent(40)) == (STORAGE_ERROR, STORAGE_ERROR, 0)
    elif story == "long ago":
        assert (refused, sent(60)) == (STORAGE_ERROR, STORAGE_ERROR)
        world.clock.now_ms += KEPT_MS + 1
        assert sent(60) == 0, "nobody waits for it any more"
    else:
        assert (refused, sent(51), sent(53)) == (0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_what_was_refused_is_another_leaders_affair_when_the_lead_is_lost() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    partition = world.partition("t")
    world.disk.capacity = world.disk.used() + 500
    peer.produce("t", batch(bytes(1000), producer_id=7, producer_epoch=0, base_sequence=50))
    assert code(peer.reply()) == STORAGE_ERROR
    world.disk.capacity = None
    role = partition.role
    partition.follow(replace(role, leader=2, leader_epoch=role.leader_epoch + 1), world.clock.now_ms)
    partition.lead(replace(role, leader_epoch=role.leader_epoch + 2), world.clock.now_ms)
    peer.produce("t", batch(b"went on", producer_id=7, producer_epoch=0, base_sequence=60))
    assert code(peer.reply()) == 0


def test_a_batch_behind_one_that_came_before_the_lead_is_refused_like_it() -> None:
    """Out of order would make librdkafka begin a new epoch and send everything unanswered again."""
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    partition = world.partition("t")
    first, second = (batch(b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in (1, 2))
    peer.produce("t", batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0))
    assert code(peer.reply()) == 0
    role = partition.role
    partition.follow(replace(role, leader=-1, leader_epoch=role.leader_epoch + 1), world.clock.now_ms)
    peer.produce("t", first)
    assert code(peer.reply()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(replace(role, leader_epoch=role.leader_epoch + 2), world.clock.now_ms)
    for one, expected in ((second, ErrorCode.NOT_LEADER_OR_FOLLOWER), (first, 0), (second, 0)):
        peer.produce("t", one)
        assert code(peer.reply()) == expected


def test_a_partition_whose_files_could_not_be_made_comes_when_there_is_room() -> None:
    """The metadata fits on the disk, the partition's files do not: it is offline, and then it is not."""
    world = World()
    peer = world.peer()
    peer.send("CreateTopics", topics=[part("CreateTopics", "CreatableTopic", "t", 1, 1)], timeout_ms=1000)
    world.disk.capacity = world.disk.used()
    world.settle()
    peer.replies()
    listed = peer.call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", bytes(16), "t")])
    if world.node.rooms.hosting.lives.missing:
        assert listed.topics[0].partitions[0].offline_replicas == [1]
    world.disk.capacity = None
    run_retention(world)
    assert world.node.rooms.hosting.lives.missing == {}
    peer.produce("t", batch(b"x"))
    world.settle()
    assert code(peer.reply()) == 0


def test_names_that_are_asked_for_are_created_only_so_many_at_a_time() -> None:
    world = World(limits=Limits(topics_auto_created_max=3))
    peer = world.peer()
    asked = [part("Metadata", "MetadataRequestTopic", bytes(16), f"t{number}") for number in range(5)]
    found = peer.call("Metadata", topics=asked, allow_auto_topic_creation=True).topics
    assert [topic.error_code for topic in found] == [0, 0, 0, 3, 3]
    found = peer.call("Metadata", topics=asked, allow_auto_topic_creation=True).topics
    assert [topic.error_code for topic in found] == [0] * 5


def test_a_disk_that_is_new_gets_an_identity_that_stays() -> None:
    disk = SimDisk()
    first = World(disk)
    first.node.close(clean=True)
    assert World(disk).node.cluster_id == first.node.cluster_id


def test_the_configured_bound_of_records_in_a_batch_is_obeyed() -> None:
    world = World(limits=Limits(batch_records_max=2))
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"1", b"2"))
    assert code(peer.reply()) == ErrorCode.NONE
    peer.produce("t", batch(b"1", b"2", b"3"))
    assert code(peer.reply()) == ErrorCode.INVALID_RECORD


def test_a_quarantined_partition_calls_no_sequence_wrong() -> None:
    """A producer that is told of a wrong sequence gives up for good; the damage may be repaired."""
    world = World()
    world.peer().create("t")
    first = world.peer()
    first.produce("t", batch(b"0", producer_id=7, producer_epoch=0, base_sequence=0))
    first.produce("t", batch(b"1", producer_id=7, producer_epoch=0, base_sequence=1))
    world.settle()
    world.node.close(clean=True)
    world.disk.write_atomic(f"t-0/{DAMAGED}", b"a bit has flipped, and what came after offset 1 is gone")
    world = World(world.disk)
    assert world.node.partitions.find("t", 0).log.quarantined
    again = world.peer()
    again.produce("t", batch(b"9", producer_id=7, producer_epoch=0, base_sequence=9))
    world.settle()
    assert code(again.reply()) == STORAGE_ERROR
