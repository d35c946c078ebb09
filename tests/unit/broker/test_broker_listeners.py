"""Clients hear the addresses of the listener by which they came, and nothing of brokers that have no such listener."""

from typing import Any

import pytest
from broker_world import Peer, World, batch, part
from follower_by_hand import Follower, replicated_topic

from skidway.broker.events import ListenerMissing
from skidway.broker.listeners import DEFAULT_NAME, Address, Listeners, ListenerSpec, only_listener
from skidway.errors import ErrorCode

OUTSIDE = "OUTSIDE"
METADATA_BEFORE_LISTENERS = 5
METADATA = 12


def spec(name: str, advertised: str, port: int) -> ListenerSpec:
    return ListenerSpec(name, Address("0.0.0.0", port), Address(advertised, port))


INSIDE_SPEC, OUTSIDE_SPEC = spec(DEFAULT_NAME, "inside", 9092), spec(OUTSIDE, "outside", 9192)


@pytest.fixture
def world() -> World:
    """A node with two listeners, and broker 2 with only the one that nodes use."""
    world = World(session_timeout_ms=10**9, rack="east", listeners=Listeners((INSIDE_SPEC, OUTSIDE_SPEC), INSIDE_SPEC))
    Follower(world, 2, rack="west")
    return world


def brokers(answer: Any) -> list[tuple[int, str, int]]:
    found = [(getattr(broker, "node_id", None) or broker.broker_id, broker) for broker in answer.brokers]
    return sorted((number, broker.host, broker.port) for number, broker in found)


def metadata(peer: Peer, *topics: str, version: int = METADATA) -> Any:
    asked = [part("Metadata", "MetadataRequestTopic", name=topic) for topic in topics]
    return peer.call("Metadata", version=version, topics=asked)


def test_each_listener_tells_its_own_addresses(world: World) -> None:
    inside, outside = world.peer(), world.peer(OUTSIDE)
    assert brokers(metadata(inside)) == [(1, "inside", 9092), (2, "host2", 9092)]
    assert brokers(metadata(outside)) == [(1, "outside", 9192)]
    assert brokers(inside.call("DescribeCluster")) == [(1, "inside", 9092), (2, "host2", 9092)]
    assert brokers(outside.call("DescribeCluster")) == [(1, "outside", 9192)]


def test_the_coordinator_is_where_the_client_can_connect(world: World) -> None:
    replicated_topic(world, "__consumer_offsets", [[1], [2]])
    found: dict[tuple[str, str], tuple[int, str, int]] = {}
    for listener in (DEFAULT_NAME, OUTSIDE):
        keys = ["a", "b"]  # one for each partition
        answer = world.peer(listener).call("FindCoordinator", version=4, coordinator_keys=keys)
        for each in answer.coordinators:
            found[listener, each.key] = (each.error_code, each.host, each.port)
    here, there = sorted(("a", "b"), key=lambda key: found[DEFAULT_NAME, key][1], reverse=True)
    assert found == {
        (DEFAULT_NAME, here): (0, "inside", 9092),
        (DEFAULT_NAME, there): (0, "host2", 9092),
        (OUTSIDE, here): (0, "outside", 9192),
        (OUTSIDE, there): (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", -1),
    }


def test_a_leader_without_the_listener_is_not_named(world: World) -> None:
    replicated_topic(world, "orders", [[2, 1], [1, 2]])
    told = {}
    for listener, version in (
        (DEFAULT_NAME, METADATA),
        (OUTSIDE, METADATA),
        (OUTSIDE, METADATA_BEFORE_LISTENERS),
    ):
        (topic,) = metadata(world.peer(listener), "orders", version=version).topics
        told[listener, version] = [
            (each.error_code, each.leader_id, each.replica_nodes, each.offline_replicas) for each in topic.partitions
        ]
    assert told[DEFAULT_NAME, METADATA] == [(0, 2, [2, 1], []), (0, 1, [1, 2], [])]
    assert told[OUTSIDE, METADATA] == [(ErrorCode.LISTENER_NOT_FOUND, -1, [2, 1], [2]), (0, 1, [1, 2], [2])]
    assert told[OUTSIDE, METADATA_BEFORE_LISTENERS][0][:2] == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    asked = [part("DescribeTopicPartitions", "TopicRequest", "orders")]
    (topic,) = world.peer(OUTSIDE).call("DescribeTopicPartitions", topics=asked, response_partition_limit=10).topics
    assert [(each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions] == [
        (ErrorCode.LISTENER_NOT_FOUND, -1, [2]),
        (0, 1, [2]),
    ]


def test_hints_are_for_those_who_can_follow_them(world: World) -> None:
    replicated_topic(world, "orders", [[2, 1]])
    data = part("Produce", "PartitionProduceData", 0, batch(b"a"))
    topics = [part("Produce", "TopicProduceData", "orders", partition_data=[data])]
    told = {}
    for listener in (DEFAULT_NAME, OUTSIDE):
        answer = world.peer(listener).call("Produce", version=10, acks=-1, timeout_ms=1000, topic_data=topics)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        told[listener] = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
    assert told == {DEFAULT_NAME: [(2, "host2", 9092)], OUTSIDE: []}


def test_the_broker_registers_all_listeners_and_nodes_use_one(world: World) -> None:
    registered = world.node.image.brokers[1]
    shown = [(each.name, each.host, each.port, each.security_protocol) for each in registered.endpoints]
    assert shown == [(DEFAULT_NAME, "inside", 9092, 0), (OUTSIDE, "outside", 9192, 0)]
    assert world.node.peers.address_of(2) == ("host2", 9092)


def test_nodes_look_for_each_other_by_their_own_listener() -> None:
    world = World(session_timeout_ms=10**9, listeners=Listeners((INSIDE_SPEC, OUTSIDE_SPEC), OUTSIDE_SPEC))
    Follower(world, 2)
    assert world.node.peers.address_of(2) is None, "it has no listener of that name"
    assert ListenerMissing(2, OUTSIDE) in world.reported
    voters = world.node.quorum.quorum.voters
    assert [(voter.host, voter.port) for voter in voters] == [("outside", 9192)]


def test_listeners_as_kafkas_tools_show_them(world: World) -> None:
    resource = part("DescribeConfigs", "DescribeConfigsResource", 4, "1", None)
    (result,) = world.peer().call("DescribeConfigs", resources=[resource]).results
    shown = {entry.name: entry.value for entry in result.configs}
    assert shown["advertised.listeners"] == "PLAINTEXT://inside:9092,OUTSIDE://outside:9192"
    assert shown["inter.broker.listener.name"] == DEFAULT_NAME


def test_names_are_unique_and_nodes_use_one_of_them() -> None:
    with pytest.raises(AssertionError):
        Listeners((INSIDE_SPEC, INSIDE_SPEC), INSIDE_SPEC)
    with pytest.raises(AssertionError):
        Listeners((INSIDE_SPEC,), OUTSIDE_SPEC)
    assert only_listener("here", 1).inter_broker == ListenerSpec(DEFAULT_NAME, Address("here", 1), Address("here", 1))
