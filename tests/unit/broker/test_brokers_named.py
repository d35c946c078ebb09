"""Which brokers clients are told of: never of none."""

from typing import Any

from broker_world import Peer, part
from nodes_together import Cluster

from skidway.wire.schema.metadata_records import BrokerRegistrationChangeRecord

FENCED = 1


def described(client: Peer) -> tuple[list[int], list[int]]:
    """(brokers, leaders of the topic's partitions)"""
    topics = [part("Metadata", "MetadataRequestTopic", name="orders")]
    reply: Any = client.call("Metadata", topics=topics, allow_auto_topic_creation=False)
    leaders = [partition.leader_id for topic in reply.topics for partition in topic.partitions]
    return sorted(broker.node_id for broker in reply.brokers), leaders


def cluster_with_topic() -> Cluster:
    cluster = Cluster(3)
    cluster.until(cluster.ready)
    cluster.client(cluster.controller()).create("orders")  # type: ignore[arg-type]
    cluster.pass_time(500)
    return cluster


def fence(cluster: Cluster, asked: int, *numbers: int) -> None:
    """As far as one node knows."""
    node = cluster.nodes[asked]
    epochs = {broker.id: broker.epoch for broker in node.image.brokers.values()}
    records = [BrokerRegistrationChangeRecord(number, epochs[number], fenced=FENCED) for number in numbers]
    node.rooms.metadata_follower.publish(records, cluster.clock.wall_ms())


def test_those_that_are_up_are_named() -> None:
    cluster = cluster_with_topic()
    fence(cluster, 1, 2)
    assert described(cluster.client(1))[0] == [1, 3]


def test_while_none_is_up_all_are_named_and_none_leads() -> None:
    cluster = cluster_with_topic()
    fence(cluster, 1, 1, 2, 3)
    assert described(cluster.client(1)) == ([1, 2, 3], [-1])
