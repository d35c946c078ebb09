"""A leader that hears of its in-sync set before it hears of settings that were changed before that."""

from typing import Any

import pytest
from broker_world import batch, code
from nodes_together import Cluster, create, made, produce, read

from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.replication.fetchers import CHANNEL
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Partition
from skidway.metadata.operations import AlterOp, ConfigChange, IncrementalAlterConfigs


def led_elsewhere(cluster: Cluster, controller: int) -> tuple[str, int]:
    """A topic whose leader is not where the controller is."""
    for number in range(3):
        leader = create(cluster, f"orders-{number}", min_insync_replicas="1")
        if leader != controller:
            return f"orders-{number}", leader
    raise AssertionError("leaders are not spread")


def set_min_in_sync(cluster: Cluster, topic: str, number: int) -> None:
    change = ConfigChange(ResourceType.TOPIC, topic, [("min.insync.replicas", AlterOp.SET, str(number))])
    controller = cluster.nodes[cluster.until(cluster.controller)]
    controller.rooms.controller.carry_out(IncrementalAlterConfigs([change]), cluster.clock.now_ms, lambda reply: None)
    cluster.settle()


def fetch_no_more(cluster: Cluster, leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others ask for nothing of this node."""
    ask = Peers.ask

    def others(peers: Peers, to: int, channel: str, *rest: Any) -> None:
        if (to, channel) != (leader, CHANNEL):
            ask(peers, to, channel, *rest)

    monkeypatch.setattr(Peers, "ask", others)


def test_what_is_acknowledged_by_an_old_min_in_sync_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller counts by the new number, and who left is eligible: a leader must not go on by the old one."""
    cluster = made(replica_lag_ms=2_000)
    controller = cluster.until(cluster.controller)
    topic, leader = led_elsewhere(cluster, controller)
    decides = cluster.nodes[controller]

    def partition() -> Partition:
        return decides.image.topics[topic].partitions[0]

    assert produce(cluster, topic, b"first") == 0
    publish, late = QuorumHost._publish, cluster.nodes[leader].quorum
    monkeypatch.setattr(QuorumHost, "_publish", lambda host: None if host is late else publish(host))
    set_min_in_sync(cluster, topic, 2)
    fetch_no_more(cluster, leader, monkeypatch)
    # What they had asked for already they get.
    assert produce(cluster, topic, b"second", acks=1, by=leader) == 0
    client = cluster.client(leader)
    client.produce(topic, batch(b"third"), timeout_ms=20_000)
    cluster.until(lambda: partition().isr == [leader])
    assert partition().eligible_leader_replicas
    cluster.pass_time(3_000)
    acknowledged: list[Any] = [code(reply) for _, reply in client.replies()]
    cluster.kill(leader)
    monkeypatch.setattr(QuorumHost, "_publish", publish)
    cluster.until(lambda: partition().leader not in (-1, leader))
    assert acknowledged != [0] or b"third" in read(cluster, partition().leader, topic)


def test_a_leader_that_was_replaced_commits_nothing_by_a_lower_min_in_sync_of_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It hears of both at once. What it took for committed it would not cut off, and follow nobody."""
    cluster = made(replica_lag_ms=2_000)
    controller = cluster.until(cluster.controller)
    topic, leader = led_elsewhere(cluster, controller)
    decides = cluster.nodes[controller]

    def partition() -> Partition:
        return decides.image.topics[topic].partitions[0]

    set_min_in_sync(cluster, topic, 2)
    assert produce(cluster, topic, b"first") == 0
    fetch_no_more(cluster, leader, monkeypatch)
    # What they had asked for already is answered.
    cluster.pass_time(1_000)
    assert produce(cluster, topic, b"never acknowledged", acks=1, by=leader) == 0
    cluster.until(lambda: partition().isr == [leader])
    cluster.cut(leader)
    cluster.until(lambda: partition().leader not in (-1, leader))
    set_min_in_sync(cluster, topic, 1)
    cluster.pass_time(1_000)
    cluster.heal()
    cluster.until(lambda: cluster.agree(topic))
    assert read(cluster, leader, topic) == [b"first"]
    assert cluster.told[leader] == []
