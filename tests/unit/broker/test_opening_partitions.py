"""A node with many partitions opens a few in every turn: it votes and answers meanwhile, and whatever the metadata says
or however it ends before all are open, the right ones are there afterwards, with all that was in them."""

from random import Random
from typing import Any

import pytest
from broker_world import batch
from hosting_world import ME, WALL_MS, Host, broker, change, created, placed, standing, topic_id
from nodes_together import create, made, produce, read

from skidway.broker.partitions import opening
from skidway.errors import NotLeaderOrFollower
from skidway.log.bounds import Bound
from skidway.log.durability.checkpoints import CLEAN_SHUTDOWN
from skidway.records.batch import iter_headers
from skidway.records.record import read_records
from skidway.records.validation import validate
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import PartitionChangeRecord, RemoveTopicRecord, TopicRecord

COUNT = 12


@pytest.fixture(autouse=True)
def _one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "TURN_MS_MAX", 0)


def write(host: Host, topic: str, index: int, value: bytes, *, sync: bool = True) -> None:
    partition = host.partition(topic, index)
    checked: Any = validate(memoryview(bytearray(batch(value))), partition.rules, 9, WALL_MS)
    taken, header = checked
    partition.append(taken, header, WALL_MS)
    if sync:
        host.hosting.turn.wants_sync(partition)
        host.sync()


def values(host: Host, topic: str, index: int = 0) -> list[bytes | None]:
    log = host.partition(topic, index).log
    found = log.read(log.start_offset, 1 << 20, Bound.END)
    data = b"" if found is None else found.read()
    return [
        record.value
        for position, header in iter_headers(data)
        for record in read_records(data[position : position + header.size], decompressed_bytes_max=1 << 20)
    ]


def with_partitions(count: int = COUNT) -> Host:
    host = standing()
    host.publish(*[record for index in range(count) for record in created("t", [1, 2], index)])
    host.work()
    for index in range(count):
        write(host, "t", index, b"%d" % index)
    return host


def open_half(host: Host) -> Host:
    host.hosting.start()
    while len(host.hosting.partitions) < COUNT // 2:
        assert host.hosting.open_some()
        host.sync()
    assert not host.hosting.started
    return host


def gone(host: Host) -> list[str]:
    return [name for name in host.disk.list("") if name.endswith("-delete")]


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_published_meanwhile_is_followed(clean: bool) -> None:
    before = with_partitions()
    before.publish(*created("gone", [1, 2]), *created("moved", [1, 2]))
    before.work()
    write(before, "gone", 0, b"x")
    write(before, "moved", 0, b"x")
    if clean:
        before.logs.close(clean=True)
    host = open_half(before.next_life())
    host.publish(
        change("t", 0, leader=2),
        change("t", COUNT - 1, leader=2),
        change("moved", replicas=[2, 3], isr=[2]),
        RemoveTopicRecord(topic_id("gone")),
        *created("new", [1, 3]),
    )
    host.work()
    assert host.partition("new").leads, "what is new need not wait for the old"
    assert host.partition("t", 0).role.leader == 2
    host.open_all()
    assert host.partition("t", COUNT - 1).role.leader == 2
    assert [values(host, "t", index) for index in range(COUNT)] == [[b"%d" % index] for index in range(COUNT)]
    with pytest.raises(NotLeaderOrFollower):
        host.partition("moved")
    assert [name.split("-0.")[0] for name in gone(host)] == ["gone", "moved"], "known to be gone: nothing to set aside"
    assert host.told == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_of_the_same_name_gets_no_old_log(clean: bool) -> None:
    before = with_partitions()
    before.publish(*created("z", [1, 2]))
    before.work()
    write(before, "z", 0, b"old")
    if clean:
        before.logs.close(clean=True)
    host = open_half(before.next_life())
    host.publish(RemoveTopicRecord(topic_id("z")))
    host.publish(TopicRecord("z", topic_id("z2")), placed(topic_id("z2"), 0, [1, 2]))
    host.work()
    host.open_all()
    host.hosting.retry(0)
    host.work()
    assert host.partition("z").topic_id == topic_id("z2")
    assert values(host, "z") == []
    assert len(gone(host)) == 1


def test_a_topic_that_goes_while_its_log_is_synced() -> None:
    before = with_partitions(1)
    host = before.next_life()
    host.hosting.start()
    host.hosting.open_some()
    (partition,) = host.hosting.turn.take_unsynced()
    host.publish(RemoveTopicRecord(topic_id("t")))
    host.publish(TopicRecord("t", topic_id("t2")), placed(topic_id("t2"), 0, [1, 2]))
    host.work()
    assert host.hosting.lives.missing, "its name is taken"
    host.hosting.turn.wants_sync(partition)
    host.open_all()
    host.work()
    assert host.partition("t").topic_id == topic_id("t2")
    assert values(host, "t") == []


def test_a_partition_that_moves_while_its_log_is_synced() -> None:
    before = with_partitions(1)
    host = before.next_life()
    host.hosting.start()
    host.hosting.open_some()
    host.publish(change("t", replicas=[2, 3], isr=[2], leader=2))
    host.work()
    host.open_all()
    host.work()
    assert len(host.hosting.partitions) == 0
    assert not host.disk.exists("t-0")
    host.publish(change("t", replicas=[2, 1]))
    host.work()
    assert values(host, "t") == []


def test_nothing_is_served_before_it_is_synced() -> None:
    before = with_partitions(2)
    host = before.next_life()
    host.hosting.start()
    while host.hosting.open_some():
        pass
    assert len(host.hosting.partitions) == 0
    assert not host.hosting.started
    host.open_all()
    host.disk.crash(Random(1))
    after = host.next_life().start()
    assert [values(after, "t", index) for index in range(2)] == [[b"0"], [b"1"]]


def test_a_log_that_cannot_be_synced_is_set_apart() -> None:
    before = with_partitions(2)
    host = before.next_life()
    host.disk.failing_syncs = {host.disk.syncs}
    host.start()
    assert [host.partition("t", index).log.quarantined for index in range(2)] == [True, False]
    assert any("quarantined" in line for line in host.told)


def test_after_a_failed_sync_elsewhere_what_is_not_synced_is_not_served() -> None:
    before = with_partitions(2)
    host = before.next_life()
    host.hosting.start()
    host.hosting.open_some()
    host.hosting.fail("the disk broke")
    while not host.hosting.started:
        host.hosting.open_some()
    assert all(host.partition("t", index).log.quarantined for index in range(2))


@pytest.mark.parametrize("seed", range(60))
def test_any_history_while_it_opens(seed: int) -> None:
    """Topics come, go and move; the node stops, is killed or loses its power while it opens, and starts again."""
    random = Random(seed)
    host = standing()
    written: dict[tuple[bytes, int], list[bytes]] = {}
    """What was synced, since the node became a replica."""
    for step in range(80):
        image = host.hosting.image
        name = random.choice("abcd")
        records: list[Message] = []
        replicas = random.sample([1, 2, 3], random.randrange(1, 4))
        if name not in image.topics:
            records = [TopicRecord(name, topic_id(f"{name}{step}"))]
            records += [placed(topic_id(f"{name}{step}"), index, replicas) for index in range(3)]
        elif random.random() < 0.3:
            records = [RemoveTopicRecord(image.topics[name].id)]
        elif random.random() < 0.5:
            described = random.choice(image.topics[name].partitions)
            fields = {"replicas": replicas, "isr": replicas, "leader": random.choice([-1, *replicas])}
            records = [PartitionChangeRecord(partition_id=described.index, topic_id=image.topics[name].id, **fields)]  # type: ignore[arg-type]
            if ME not in replicas:
                written.pop((image.topics[name].id, described.index), None)
        host.publish(*records)
        if random.random() < 0.7:
            host.work()
        if random.random() < 0.5:
            host.hosting.open_some()
        if random.random() < 0.3:
            host.sync()
        for partition in list(host.hosting.partitions):
            if random.random() < 0.2 and partition.log.failure is None:
                value = b"%d" % step
                write(host, partition.topic, partition.index, value)
                written.setdefault((partition.topic_id, partition.index), []).append(value)
        if random.random() < 0.2:
            host = ended(host, random)
    if not host.hosting.begun:
        host.hosting.start()
    host.open_all()
    host.work()
    host.hosting.retry(0)
    host.work()
    host.sync()
    check(host, written)


def ended(host: Host, random: Random) -> Host:
    """A stop, a kill or a loss of power, and the beginning of the next run."""
    how = random.randrange(3)
    if how == 0:
        # As a node does: who has not opened everything may only vouch for what was clean before.
        host.logs.close(clean=host.hosting.started or host.logs.clean)
    elif how == 1:
        host.disk.kill()
    else:
        host.disk.crash(random)
    host = host.next_life()
    host.hosting.start()
    return host


def check(host: Host, written: dict[tuple[bytes, int], list[bytes]]) -> None:
    for topic in host.hosting.image.topics.values():
        for described in topic.partitions:
            here = ME in described.replicas
            partition = host.hosting.partitions.get(topic.id, described.index)
            assert (partition is not None) == here
            assert host.disk.exists(f"{topic.name}-{described.index}") == here
            if partition is not None:
                assert partition.leads == (described.leader == ME)
                assert partition.topic_id == topic.id
                kept = written.get((topic.id, described.index), [])
                assert values(host, topic.name, described.index)[-len(kept) or 1 << 30 :] == kept
    assert not host.hosting.lives.missing
    assert not host.logs.found


# Whole nodes.


def test_a_node_votes_and_stays_a_member_while_it_opens() -> None:
    cluster = made()
    create(cluster, "t", partitions=60)
    assert produce(cluster, "t", b"kept") == 0
    slow = next(number for number in cluster.nodes if number != cluster.controller())
    cluster.kill(slow)
    cluster.pass_time(3_000)
    cluster.restart(slow)
    node = cluster.nodes[slow]
    cluster.until(lambda: len(node.partitions) > 3)
    assert node.rooms.hosting.begun
    assert not node.serving
    first = cluster.controller()
    assert first is not None
    cluster.kill(first)
    # With one of three nodes gone and one that opens, nobody is elected unless that one votes.
    while cluster.controller() in (None, first):
        cluster.pass_time(1)
        if len(node.partitions) >= 50:
            # Slower still: the rest waits for the election.
            node.rooms.hosting.opening.stopped = True  # type: ignore[union-attr]
    assert not node.serving
    assert node.image.brokers[slow].fenced
    node.rooms.hosting.opening.stopped = False  # type: ignore[union-attr]
    node.rooms.start.open_more_soon()
    cluster.until(lambda: node.serving and not node.rooms.registration.fenced)
    cluster.until(lambda: cluster.agree("t"))
    assert read(cluster, slow, "t") == [b"kept"]


@pytest.mark.parametrize("clean_before", [True, False])
def test_a_stop_in_the_middle_vouches_only_for_what_was_clean_before(clean_before: bool) -> None:
    cluster = made()
    create(cluster, "t", partitions=30)
    assert produce(cluster, "t", b"kept") == 0
    number = next(each for each in cluster.nodes if each != cluster.controller())
    if clean_before:
        cluster.stop(number)
    else:
        cluster.kill(number)
    cluster.pass_time(3_000)
    cluster.restart(number)
    node = cluster.nodes[number]
    cluster.until(lambda: len(node.partitions) > 3)
    assert not node.serving
    cluster.stop(number)
    assert (CLEAN_SHUTDOWN in cluster.disks[number].list("")) == clean_before
    cluster.restart(number)
    cluster.until(cluster.ready)
    cluster.until(lambda: cluster.agree("t"))
    assert read(cluster, number, "t") == [b"kept"]


def test_heartbeats_ask_to_stay_fenced_until_all_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = made()
    create(cluster, "t", partitions=60)
    number = next(each for each in cluster.nodes if each != cluster.controller())
    cluster.kill(number)
    cluster.pass_time(3_000)
    cluster.restart(number)
    node = cluster.nodes[number]
    asked: list[tuple[bool, int]] = []
    ask = node.rooms.controller.ask

    def ask_and_note(request: Message, *rest: object, **named: object) -> None:
        if hasattr(request, "want_fence"):
            asked.append((request.want_fence, len(node.partitions)))
        ask(request, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(node.rooms.controller, "ask", ask_and_note)
    cluster.until(lambda: node.serving and not node.rooms.registration.fenced)
    while_opening = [want_fence for want_fence, count in asked if 0 < count < 60]
    assert while_opening
    assert all(while_opening)
    assert asked[-1] == (False, 60)


def test_brokers_that_were_there_before() -> None:
    """A log that no topic knows is set aside, however late its turn comes."""
    before = with_partitions()
    before.publish(*created("lost", [1, 2]))
    before.work()
    write(before, "lost", 0, b"x")
    before.logs.close(clean=True)
    host = Host(before.disk)
    host.publish(broker(1), broker(2), broker(3))
    host.publish(*[record for index in range(COUNT) for record in created("t", [1, 2], index)])
    open_half(host)
    host.open_all()
    assert any(name.startswith("lost-0") and name.endswith("-stray") for name in host.disk.list(""))
    assert [line.split(":")[0] for line in host.told] == ["lost-0"]
