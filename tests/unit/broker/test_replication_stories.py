"""Three whole nodes: what a leader acknowledges is on the others, whoever fails."""

import errno
from typing import Any
from unittest.mock import patch

import pytest
from broker_world import batch, code, part
from nodes_together import Cluster, create, made, produce, read

from skidway.broker.reads.ends import FOLLOWERS_WAIT_MS
from skidway.sim.world.disk import SimFile

NOT_ENOUGH_REPLICAS, NOT_LEADER = 19, 6
FLUSHES = pytest.mark.parametrize("flush", ["os", "sync"])


@FLUSHES
def test_what_is_acknowledged_is_on_all_three(flush: str) -> None:
    cluster = made()
    leader = create(cluster, "t", flush=flush)
    assert produce(cluster, "t", b"a", b"b") == 0
    assert produce(cluster, "t", b"c") == 0
    for copy in cluster.copies("t").values():
        assert copy.log.end_offset == 3, "before the answer, not some time after it"
    cluster.until(lambda: cluster.agree("t"))
    assert read(cluster, leader, "t") == [b"a", b"b", b"c"]


def test_one_node_less_costs_nothing_and_two_less_stop_acks_all() -> None:
    cluster = made()
    leader = create(cluster, "t", min_insync_replicas="2")
    others = [number for number in cluster.nodes if number != leader]
    cluster.kill(others[0])
    assert produce(cluster, "t", b"a") == 0
    cluster.kill(others[1])
    cluster.pass_time(3000)
    assert cluster.nodes[leader].partitions.find("t", 0).leads, "nobody can elect another"


@FLUSHES
def test_after_a_leader_is_lost_another_has_everything_that_was_acknowledged(flush: str) -> None:
    cluster = made()
    lost = create(cluster, "t", flush=flush)
    acknowledged = [b"%d" % number for number in range(20)]
    for value in acknowledged:
        assert produce(cluster, "t", value) == 0
    cluster.kill(lost, power_lost=True)
    leader = cluster.until(lambda: cluster.leader("t"))
    assert leader != lost
    assert read(cluster, leader, "t") == acknowledged
    assert produce(cluster, "t", b"more") == 0
    cluster.restart(lost)
    cluster.until(cluster.ready)
    cluster.until(lambda: cluster.agree("t"))
    assert read(cluster, cluster.until(lambda: cluster.leader("t")), "t") == [*acknowledged, b"more"]


@FLUSHES
def test_what_only_a_lost_leader_had_is_cut_when_it_returns(flush: str) -> None:
    cluster = made()
    lost = create(cluster, "t", flush=flush)
    assert produce(cluster, "t", b"everywhere") == 0
    cluster.until(lambda: cluster.agree("t"))
    cluster.cut(lost)
    assert produce(cluster, "t", b"only here", acks=1, by=lost) == 0
    waiting = cluster.client(lost)
    waiting.produce("t", batch(b"this too"), timeout_ms=60_000)
    rest = {number: node for number, node in cluster.nodes.items() if number != lost}
    leader = cluster.until(lambda: next((n for n, node in rest.items() if node.partitions.find("t", 0).leads), None))
    assert produce(cluster, "t", b"instead", by=leader) == 0
    assert not waiting.replies(), "nobody else has it"
    cluster.heal()
    ((_, refused),) = cluster.until(waiting.replies)
    assert code(refused) == NOT_LEADER
    cluster.until(lambda: cluster.agree("t"))
    assert read(cluster, leader, "t") == [b"everywhere", b"instead"]


def test_a_copy_that_could_not_be_cut_is_not_led_with_but_fetched_anew() -> None:
    """The disk gave up half-way: what the node has in memory is neither the old log nor the new one."""
    cluster = made()
    lost = create(cluster, "t", flush="os")
    assert produce(cluster, "t", b"everywhere") == 0
    cluster.until(lambda: cluster.agree("t"))
    cluster.cut(lost)
    assert produce(cluster, "t", b"only here", acks=1, by=lost) == 0
    rest = {number: node for number, node in cluster.nodes.items() if number != lost}
    leader = cluster.until(lambda: next((n for n, node in rest.items() if node.partitions.find("t", 0).leads), None))
    assert produce(cluster, "t", b"instead", by=leader) == 0
    copy, disk = cluster.copy(lost, "t"), cluster.disks[lost]
    truncate = SimFile.truncate
    failed: list[Any] = []

    def fail_once(file: SimFile, size: int) -> None:
        if file._disk is disk and not failed:
            failed.append(size)
            raise OSError(errno.EIO, "the disk is ill")
        truncate(file, size)

    with patch.object(SimFile, "truncate", fail_once):
        cluster.heal()
        cluster.until(lambda: cluster.agree("t"))
    assert any("could not be truncated" in line for line in cluster.told[lost])
    assert (copy.log.failure, copy.log.quarantined) == (None, False)
    assert read(cluster, leader, "t") == [b"everywhere", b"instead"]


def test_nothing_is_acknowledged_by_too_few_when_the_setting_comes_later_than_a_smaller_in_sync_set() -> None:
    """The controller knows that two have to be in sync when it lets one go, and counts on that one: the leader, which
    has not heard of it, would acknowledge alone what the other is elected without."""
    cluster = made(replica_lag_ms=2_000)
    names = (f"t{number}" for number in range(20))
    leaders = ((name, create(cluster, name, replicas=2, flush="os", min_insync_replicas="1")) for name in names)
    topic, leader = next((name, leader) for name, leader in leaders if leader != cluster.controller())
    (other,) = [member for member in cluster.copy(leader, topic).role.replicas if member != leader]
    assert produce(cluster, topic, b"a") == 0
    cluster.until(lambda: cluster.copy(other, topic).log.high_watermark == 1)
    held: list[Any] = []
    with patch.object(cluster.nodes[leader].relay, "on_metadata", held.append):
        assert cluster.client(cluster.until(cluster.controller)).alter(topic, min_insync_replicas="2") == 0
        cluster.nodes[other].rooms.followers.stop()
        client = cluster.client(leader)
        client.produce(topic, batch(b"b"), timeout_ms=60_000)
        cluster.until(lambda: cluster.copy(other, topic).role.eligible_leaders == [other])
        cluster.pass_time(1_000)
        assert held
        assert client.replies() == []
    for records in held:
        cluster.nodes[leader].relay.on_metadata(records)
    cluster.pass_time(1_000)
    assert client.replies() == []
    assert produce(cluster, topic, b"c", by=leader) == NOT_ENOUGH_REPLICAS


def test_followers_send_clients_to_the_leader() -> None:
    cluster = made()
    leader = create(cluster, "t")
    other = next(number for number in cluster.nodes if number != leader)
    assert produce(cluster, "t", b"a", by=other) == NOT_LEADER
    told = cluster.client(other).call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", name="t")])
    (partition,) = told.topics[0].partitions
    assert (partition.leader_id, sorted(partition.replica_nodes)) == (leader, [1, 2, 3])
    assert told.controller_id == cluster.nodes[other].rooms.controller.node_id
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader("t"))
    told = cluster.client(other).call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", name="t")])
    (partition,) = told.topics[0].partitions
    assert partition.offline_replicas == [leader]
    assert leader not in partition.isr_nodes
    assert leader not in [broker.node_id for broker in told.brokers]


def test_what_tools_are_told_of_a_node_that_is_gone() -> None:
    cluster = made()
    create(cluster, "t", min_insync_replicas="3")
    gone = 3 if cluster.leader("t") != 3 else 2
    cluster.kill(gone)
    cluster.until(lambda: gone not in cluster.nodes[1].rooms.hosting.whereabouts.online)
    client = cluster.client(1)
    named = [part("DescribeTopicPartitions", "TopicRequest", "t")]
    told = client.call("DescribeTopicPartitions", topics=named, response_partition_limit=10)
    (partition,) = told.topics[0].partitions
    assert partition.offline_replicas == [gone]
    assert gone not in partition.isr_nodes
    assert partition.eligible_leader_replicas == [gone], "it has everything: nothing was acknowledged without it"
    for asked, expected in ((True, {1: False, 2: False, 3: False} | {gone: True}), (False, None)):
        brokers = client.call("DescribeCluster", version=2, include_fenced_brokers=asked).brokers
        if expected is None:
            assert gone not in [broker.broker_id for broker in brokers]
        else:
            assert {broker.broker_id: broker.is_fenced for broker in brokers} == expected


def test_a_topic_deleted_while_its_copies_are_fetched() -> None:
    cluster = made()
    create(cluster, "t")
    create(cluster, "u")
    client = cluster.client(1)
    client.delete("t")
    cluster.until(client.replies)
    cluster.until(lambda: not any("t" in node.image.topics for node in cluster.nodes.values()))
    cluster.pass_time(1000)
    assert produce(cluster, "u", b"a") == 0
    cluster.until(lambda: cluster.agree("u"))
    for number in cluster.nodes:
        assert not cluster.disks[number].exists("t-0")
        assert len(cluster.nodes[number].rooms.followers) <= 1


def test_many_partitions_share_a_fetcher() -> None:
    cluster = made()
    create(cluster, "t", 30, flush="os")
    for index in range(30):
        leader = cluster.until(lambda: cluster.leader("t", index))  # noqa: B023
        client = cluster.client(leader)
        client.produce("t", batch(b"%d" % index), index=index)
        ((_, reply),) = cluster.until(client.replies)
        assert code(reply) == 0
    cluster.until(lambda: all(cluster.agree("t", index) for index in range(30)))
    for node in cluster.nodes.values():
        assert len(node.rooms.followers) == sum(not copy.leads for copy in node.partitions)


def reassign(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    wanted = part("AlterPartitionReassignments", "ReassignablePartition", partition_index=0, replicas=replicas)
    entry = part("AlterPartitionReassignments", "ReassignableTopic", name=topic, partitions=[wanted])
    client = cluster.client(cluster.until(cluster.controller))
    client.send("AlterPartitionReassignments", timeout_ms=5000, topics=[entry])
    ((_, reply),) = cluster.until(client.replies)
    assert (reply.error_code, reply.responses[0].partitions[0].error_code) == (0, 0), reply

    def done() -> bool:
        described = [node.image.topics[topic].partitions[0] for node in cluster.nodes.values()]
        return all(one.replicas == replicas and not one.adding_replicas for one in described)

    cluster.until(done)


def test_a_partition_moves_away_and_back() -> None:
    cluster = made()
    create(cluster, "t", replicas=2, flush="os")
    first = cluster.nodes[1].image.topics["t"].partitions[0].replicas
    (spare,) = {1, 2, 3} - set(first)
    assert produce(cluster, "t", b"a") == 0
    moved_from = first[0]
    reassign(cluster, "t", [first[1], spare])
    cluster.pass_time(100)
    assert produce(cluster, "t", b"b") == 0
    assert not cluster.disks[moved_from].exists("t-0")
    assert produce(cluster, "t", b"c", by=moved_from) == NOT_LEADER, "it knows the topic, and has nothing of it"
    reassign(cluster, "t", [moved_from, spare])
    assert produce(cluster, "t", b"d") == 0
    assert cluster.copy(moved_from, "t").log.end_offset == 3
    assert len(cluster.nodes[first[1]].rooms.followers) == 0
    assert not any(cluster.told.values())


def test_a_node_that_slept_through_a_move_removes_what_it_had() -> None:
    cluster = made()
    create(cluster, "t", replicas=2, flush="os")
    first = cluster.nodes[1].image.topics["t"].partitions[0].replicas
    (spare,) = {1, 2, 3} - set(first)
    assert produce(cluster, "t", b"a") == 0
    cluster.kill(first[1])
    cluster.until(lambda: cluster.leader("t") == first[0])
    reassign(cluster, "t", [first[0], spare])
    cluster.restart(first[1])
    cluster.until(cluster.ready)
    assert not cluster.disks[first[1]].exists("t-0")
    assert produce(cluster, "t", b"b") == 0


def test_a_damaged_copy_is_fetched_anew_once_nobody_counts_on_it() -> None:
    cluster = made(replica_lag_ms=2000)
    leader = create(cluster, "t", flush="sync")
    for value in (b"a", b"b", b"c"):
        assert produce(cluster, "t", value) == 0
    cluster.until(lambda: cluster.agree("t"))
    damaged = next(number for number in cluster.nodes if number != leader)
    cluster.stop(damaged)
    cluster.disks[damaged].open("t-0/00000000000000000000.log").truncate(100)
    cluster.disks[damaged].remove(".kafka_cleanshutdown")
    cluster.restart(damaged)
    cluster.until(cluster.ready)
    assert any("quarantined" in line for line in cluster.told[damaged])
    assert produce(cluster, "t", b"d") == 0
    cluster.until(lambda: cluster.agree("t"))
    assert not cluster.copy(damaged, "t").log.quarantined


def test_a_follower_that_has_not_synced_holds_the_answer_back() -> None:
    cluster = made()
    leader = create(cluster, "t", flush="sync", min_insync_replicas="3")
    assert produce(cluster, "t", b"a") == 0
    slow = next(number for number in cluster.nodes if number != leader)
    cluster.slow_syncs.add(slow)
    client = cluster.client(leader)
    client.produce("t", batch(b"b"))
    cluster.pass_time(600)
    assert cluster.copy(slow, "t").log.end_offset == 2, "it has it"
    assert not client.replies(), "but not for sure"
    cluster.finish_syncs(slow)
    ((_, reply),) = cluster.until(client.replies)
    assert code(reply) == 0


def test_followers_forget_what_the_leader_deleted() -> None:
    cluster = made()
    leader = create(cluster, "t", flush="os")
    for value in (b"a", b"b", b"c"):
        assert produce(cluster, "t", value) == 0
    entry = part("DeleteRecords", "DeleteRecordsPartition", 0, 2)
    topics = [part("DeleteRecords", "DeleteRecordsTopic", "t", [entry])]
    other = next(number for number in cluster.nodes if number != leader)
    for number, expected in ((other, NOT_LEADER), (leader, 0)):
        client = cluster.client(number)
        client.send("DeleteRecords", topics=topics, timeout_ms=1000)
        cluster.until(lambda: client.connection.outbox)  # noqa: B023
        assert client.reply().topics[0].partitions[0].error_code == expected
    assert {copy.log.start_offset for copy in cluster.copies("t").values()} == {2}
    # It was answered, so no copy of it comes back, not even from a replica that led again after a loss of power.
    for number in list(cluster.nodes):
        cluster.kill(number, power_lost=True)
    for number in cluster.disks:
        cluster.restart(number)
    cluster.until(lambda: all(node.serving for node in cluster.nodes.values()))
    assert {copy.log.start_offset for copy in cluster.copies("t").values()} == {2}


def ask_for_end(cluster: Cluster, leader: int) -> Any:
    """A client that asks where the topic ends, and its reply when it has come."""
    client = cluster.client(leader)
    entry = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=-1)
    topics = [part("ListOffsets", "ListOffsetsTopic", "t", [entry])]
    client.send("ListOffsets", replica_id=-1, topics=topics, version=7)
    cluster.until(lambda: client.connection.outbox)
    return client.reply().topics[0].partitions[0]


@FLUSHES
def test_the_end_after_acks_1_waits_for_the_followers(flush: str) -> None:
    cluster = made()
    leader = create(cluster, "t", flush=flush)
    client = cluster.client(leader)
    client.produce("t", batch(b"a"), acks=1)
    assert code(client.reply()) == 0
    assert ask_for_end(cluster, leader).offset == 1


def test_the_end_does_not_wait_for_long_for_a_follower_that_is_gone() -> None:
    cluster = made(session_timeout_ms=60_000)
    leader = create(cluster, "t", flush="os")
    for number in [number for number in cluster.nodes if number != leader]:
        cluster.kill(number)
    client = cluster.client(leader)
    client.produce("t", batch(b"a"), acks=1)
    assert code(client.reply()) == 0
    began_ms = cluster.clock.now_ms
    assert ask_for_end(cluster, leader).offset == 0
    assert cluster.clock.now_ms - began_ms <= FOLLOWERS_WAIT_MS + 100
