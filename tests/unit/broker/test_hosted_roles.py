"""Whatever the metadata says, in whatever order: a node has the partitions it should have, in the right role."""

from random import Random

import pytest
from broker_world import batch
from hosting_world import ME, WALL_MS, Host, broker, change, created, placed, standing, topic_id

from skidway.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Image
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    ConfigRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)

RECOVERING = 1


def test_it_leads_what_it_should_lead_and_follows_the_rest() -> None:
    host = standing(1, 2)
    host.publish(*created("u", [2, 1]), *created("v", [2, 3]))
    host.work()
    assert host.partition("t").leads
    assert not host.partition("u").leads
    assert host.changed == [("t-0", 1, 0), ("u-0", 2, 0)]
    with pytest.raises(NotLeaderOrFollower):
        host.partition("v")
    with pytest.raises(UnknownTopicOrPartition):
        host.partition("w")


def test_a_new_leader_is_told_and_a_new_in_sync_set_is_not() -> None:
    host = standing(1, 2, 3)
    host.publish(change("t", isr=[1, 2]))
    assert host.partition("t").leader.in_sync == [1, 2]
    assert host.changed == [("t-0", 1, 0)]
    host.publish(change("t", leader=2))
    assert not host.partition("t").leads
    host.publish(change("t", leader=-1), change("t", leader=1))
    assert host.partition("t").leads
    assert host.changed == [("t-0", 1, 0), ("t-0", 2, 1), ("t-0", 1, 3)], "what came together is one change"


def test_leaders_know_who_may_join_their_in_sync_set() -> None:
    host = standing(1, 2, 3)
    eligible = host.partition("t").role.eligible
    assert eligible == {1: 1, 2: 1, 3: 1}
    host.publish(FenceBrokerRecord(id=2, epoch=1))
    assert host.partition("t").role.eligible == {1: 1, 3: 1}
    host.publish(broker(2, 7, fenced=True), UnfenceBrokerRecord(id=2, epoch=7))
    assert host.partition("t").role.eligible == {1: 1, 2: 7, 3: 1}


def test_a_leader_that_may_lack_committed_records_is_known_even_if_that_is_over() -> None:
    host = standing(2, 1)
    host.partition("t").unclean = False
    host.publish(
        change("t", leader=2, leader_recovery_state=RECOVERING), change("t", isr=[2, 1], leader_recovery_state=0)
    )
    assert host.partition("t").unclean
    host.partition("t").unclean = False
    host.publish(change("t", leader=2))
    assert not host.partition("t").unclean


def test_the_watermark_of_a_copy_is_the_saved_one() -> None:
    host = standing(1, 2)
    alone = created("alone", [1])
    host.publish(*alone)
    host.work()
    for name in ("t", "alone"):
        for _ in range(3):
            host.partition(name).produce(memoryview(bytearray(batch(b"x"))), 1, 9, WALL_MS)
    host.partition("t").advance(2)
    host = host.again()
    assert (host.partition("t").log.high_watermark, host.partition("t").log.end_offset) == (2, 3)
    assert host.partition("alone").log.high_watermark == 3


def test_a_partition_that_moved_away_leaves_nothing_behind() -> None:
    host = standing(1, 2)
    host.publish(change("t", replicas=[2, 3], isr=[2], leader=2))
    host.work()
    ((gone, why),) = host.removed
    assert gone == "t-0"
    assert isinstance(why, NotLeaderOrFollower)
    assert not host.disk.exists("t-0")
    with pytest.raises(NotLeaderOrFollower):
        host.partition("t")
    host.publish(change("t", replicas=[1, 2, 3]))
    host.work()
    assert not host.partition("t").leads


def test_it_comes_back_before_a_worker_has_left_its_files() -> None:
    host = standing(1, 2)
    old = host.partition("t")
    ticket = old.begin_sync()
    assert ticket is not None
    host.publish(change("t", replicas=[2], isr=[2], leader=2))
    host.publish(change("t", replicas=[2, 1]))
    host.work()
    assert host.hosting.lives.missing, "its name is taken"
    ticket.run()
    old.finish_sync(ticket)
    host.hosting.finish_removal(old, WALL_MS)
    assert host.partition("t") is not old
    assert not host.hosting.lives.missing


@pytest.mark.parametrize("seed", range(40))
def test_any_history(seed: int) -> None:
    """Also after a restart in the middle, and whether records come one by one or together."""
    random = Random(seed)
    host = standing()
    for step in range(60):
        image = host.hosting.image
        records: list[Message] = []
        names = [name for name in "abc" if name in image.topics]
        touched: set[str] = set()
        for _ in range(random.randrange(1, 4)):
            name = random.choice("abc")
            if name in touched:
                continue
            touched.add(name)
            replicas = random.sample([1, 2, 3], random.randrange(1, 4))
            if name not in names:
                records += [TopicRecord(name, topic_id(f"{name}{step}"))]
                records += [placed(topic_id(f"{name}{step}"), index, replicas) for index in range(2)]
            elif random.random() < 0.2:
                records.append(RemoveTopicRecord(image.topics[name].id))
            else:
                leader = random.choice([-1, *replicas])
                records.append(
                    PartitionChangeRecord(
                        partition_id=random.randrange(2),
                        topic_id=image.topics[name].id,
                        replicas=replicas,
                        isr=replicas,
                        leader=leader,
                    )
                )
        host.publish(*records)
        if random.random() < 0.7:
            host.work()
        if random.random() < 0.05:
            host.work()
            host = host.again()
    host.work()
    for topic in host.hosting.image.topics.values():
        for described in topic.partitions:
            here = ME in described.replicas
            partition = host.hosting.partitions.get(topic.id, described.index)
            assert (partition is not None) == here
            assert host.disk.exists(f"{topic.name}-{described.index}") == here
            if partition is not None:
                assert partition.leads == (described.leader == ME)
                assert partition.leader.epoch == partition.role.leader_epoch == described.leader_epoch
                assert partition.topic_id == topic.id
    known = {f"{topic.name}-{one.index}" for topic in host.hosting.image.topics.values() for one in topic.partitions}
    found = {name for name in host.disk.list("") if name[-2:] in ("-0", "-1")}
    assert found <= known
    assert not host.hosting.lives.missing


# --- roles and settings that come together ---


def min_in_sync(number: int) -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, "t", "min.insync.replicas", str(number))


def waits_for_one_more(in_sync: list[int], number: int) -> Host:
    """A leader with a record that too few have, or that a follower in sync lacks."""
    host = standing(1, 2, 3)
    host.publish(min_in_sync(number), change("t", isr=in_sync))
    host.partition("t").produce(memoryview(bytearray(batch(b"x"))), 1, 9, WALL_MS)
    assert host.partition("t").log.high_watermark == 0
    return host


REPLACED = [change("t", isr=[2], leader=2), min_in_sync(1)]
ALONE = [min_in_sync(2), change("t", isr=[1], eligible_leader_replicas=[2])]


@pytest.mark.parametrize("by_snapshot", [False, True])
@pytest.mark.parametrize(("in_sync", "number", "news"), [([1], 2, REPLACED), ([1, 2], 1, ALONE)])
def test_what_comes_together_commits_nothing_on_the_way(
    in_sync: list[int], number: int, news: list[Message], by_snapshot: bool
) -> None:
    host = waits_for_one_more(in_sync, number)
    if by_snapshot:
        image = Image()
        for record in [*host.published, *news]:
            image.apply(record)
        host.follower.replace(image, WALL_MS)
    else:
        host.publish(*news)
    assert host.partition("t").log.high_watermark == 0
    assert host.partition("t").leader.min_in_sync == (1 if news is REPLACED else 2)
