"""The cluster for tests: what its verbs do to real nodes, and that none of them is left behind."""

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.testing import Cluster
from skidway.testing.broker import BrokerFailed
from waiting import comes_true, eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def write(cluster: Cluster, topic: str, word: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, word)
    assert producer.flush(60) == 0


def members(cluster: Cluster, node: int) -> set[int]:
    with Client(cluster[node].bootstrap) as client:
        return set(client.refresh([]).brokers)


@pytest.mark.skidway(flush="os", topic_defaults={"min.insync.replicas": 2})
def test_what_can_happen_to_nodes(cluster: Cluster) -> None:
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("t", partitions=1, replication=3)
    write(cluster, "t", b"all up")
    led = cluster.leader_of("t")
    assert sorted([led, *cluster.followers_of("t")]) == [1, 2, 3]

    cluster.kill(led)
    assert cluster.running == [node for node in (1, 2, 3) if node != led]
    assert cluster.leader_of("t") != led
    assert cluster.controller() in cluster.running
    write(cluster, "t", b"one killed")
    cluster.start(led)
    cluster.await_in_sync("t")

    paused = cluster.controller()
    cluster.pause(paused)
    assert cluster.controller() != paused
    write(cluster, "t", b"one paused")
    cluster.resume(paused)
    cluster.await_in_sync("t")

    cluster.restart(1)
    cluster.restart(2, kill=True)
    eventually(lambda: members(cluster, 1) == members(cluster, 3) == {1, 2, 3})
    write(cluster, "t", b"all up again")


def test_a_network_that_is_cut(cluster: Cluster) -> None:
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("t", partitions=1, replication=3)
    led = cluster.leader_of("t")
    cluster.partition([led])
    eventually(lambda: cluster.leader_of("t") != led)
    others = [node for node in (1, 2, 3) if node != led]
    assert cluster.leader_of("t") in others
    assert cluster.controller() in others
    cluster.heal()
    cluster.await_members()
    cluster.await_in_sync("t")

    # One way: heartbeats to the controller do not arrive, so the broker is fenced, whatever it hears.
    def is_fenced() -> bool:
        deaf = cluster.controller()  # another one, perhaps, if the machine is so busy that it is given up
        mute = next(node for node in (1, 2, 3) if node != deaf)
        cluster.heal()
        cluster.cut(mute, deaf)
        return comes_true(lambda: mute not in members(cluster, deaf), 10)

    eventually(is_fenced)
    cluster.heal()
    cluster.await_members()


@pytest.mark.skidway(
    nodes=4, voters=2, flush="os", node_settings={1: {"roles": "controller"}, 2: {"roles": "controller"}}
)
def test_controllers_apart_from_brokers(cluster: Cluster) -> None:
    """Two keep the metadata and no messages, two keep messages and follow the metadata."""
    assert cluster.controller() in (1, 2)
    eventually(lambda: members(cluster, 3) == members(cluster, 4) == {3, 4})
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("t", partitions=2, replication=2)
    write(cluster, "t", b"one")
    cluster.restart(cluster.controller(), kill=True)
    cluster.restart(cluster.leader_of("t"))
    cluster.await_in_sync("t")
    write(cluster, "t", b"two")


@pytest.mark.skidway(
    nodes=3,
    voters=1,
    flush="os",
    default_replication_factor=1,
    default_partitions=1,
    node_settings={1: {"roles": "controller", "default_replication_factor": 2, "default_partitions": 3}},
)
def test_the_defaults_of_controllers_count_for_new_topics(cluster: Cluster) -> None:
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("asked-for")
        write(cluster, "on-first-use", b"one")
        for topic in ("asked-for", "on-first-use"):
            partitions = client.look_up(topic).partitions
            assert [len(each.replicas) for each in partitions.values()] == [2, 2, 2]


def test_nobody_is_left_behind(tmp_path: Path) -> None:
    cluster = Cluster(2, data_dir=tmp_path, flush="os")
    with cluster:
        pids = [broker.pid for broker in cluster.brokers.values()]
        assert cluster.network is not None
        assert cluster.network._process is not None
        pids.append(cluster.network._process.pid)
        cluster.pause(2)
    assert not any(is_running(pid) for pid in pids)
    cluster.close()
    assert sorted(os.listdir(tmp_path)) == ["node-1", "node-2"]  # the caller's directory stays


def test_mistakes_are_told() -> None:
    cluster = Cluster(1, network=False)
    with pytest.raises(RuntimeError, match="network=False: there is nothing to cut"):
        cluster.cut(1, 2)
    with pytest.raises(KeyError, match="no node 4 in this cluster"):
        cluster.kill(4)
    cluster.close()
    with pytest.raises(ValueError, match="a cluster of 0 nodes: expected 1 or more"):
        Cluster(0)
    with pytest.raises(ValueError, match="4 voters in a cluster of 3 nodes: expected 1 to 3"):
        Cluster(3, voters=4)


def test_a_topic_that_does_not_exist_is_waited_for_and_then_told() -> None:
    with Cluster(1, network=False, flush="os") as cluster:
        with pytest.raises(BrokerFailed, match="there is no topic nope with a partition 0; create it first"):
            cluster.leader_of("nope", seconds=0.5)
        with Client(cluster.bootstrap) as client:
            Admin(client).create_topic("t", partitions=1)
        assert cluster.leader_of("t") == 1
        with pytest.raises(BrokerFailed, match="there is no topic t with a partition 7"):
            cluster.leader_of("t", 7, seconds=0.5)
