"""Three whole nodes: what a leader acknowledges is on the others, whoever fails."""

import pytest
from broker_world import batch, code, part
from cluster_world import create, made, produce, read

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


def test_followers_send_clients_to_the_leader() -> None:
    cluster = made()
    leader = create(cluster, "t")
    other = next(number for number in cluster.nodes if number != leader)
    assert produce(cluster, "t", b"a", by=other) == NOT_LEADER
    told = cluster.client(other).call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", name="t")])
    (partition,) = told.topics[0].partitions
    assert (partition.leader_id, sorted(partition.replica_nodes)) == (leader, [1, 2, 3])
    assert told.controller_id == cluster.nodes[other].controller_id
    cluster.kill(leader)
    cluster.until(lambda: cluster.leader("t"))
    told = cluster.client(other).call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", name="t")])
    (partition,) = told.topics[0].partitions
    assert partition.offline_replicas == [leader]
    assert leader not in partition.isr_nodes
    assert leader not in [broker.node_id for broker in told.brokers]


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
        assert len(cluster.nodes[number].followers) <= 1


def test_many_partitions_share_a_fetcher() -> None:
    cluster = made()
    create(cluster, "t", 30, flush="os")
    for index in range(30):
        leader = cluster.until(lambda index=index: cluster.leader("t", index))
        client = cluster.client(leader)
        client.produce("t", batch(b"%d" % index), index=index)
        ((_, reply),) = cluster.until(client.replies)
        assert code(reply) == 0
    cluster.until(lambda: all(cluster.agree("t", index) for index in range(30)))
    for node in cluster.nodes.values():
        assert len(node.followers) == sum(not copy.leads for copy in node.partitions)
