"""What operators learn from a cluster's log: one event for each transition, from the node that knows."""

from typing import Any, TypeVar

import pytest
from broker_world import part
from nodes_together import Cluster, create, made

from skidway.broker.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    ConfigsChanged,
    ControllerChanged,
    FirstStart,
    LeadersElected,
    PartitionsAdded,
    TooFewReplicas,
    TopicCreated,
    TopicDeleted,
    VoterLost,
    VoterReturned,
    VoterWiped,
    Why,
)
from skidway.metadata.config_keys import ResourceType
from skidway.server.event_text import line_of
from skidway.sim.world.disk import SimDisk

Kind = TypeVar("Kind")


@pytest.fixture
def cluster() -> Cluster:
    return made()


def reported(cluster: Cluster, kind: type[Kind], *, by: int | None = None) -> list[Kind]:
    nodes = [by] if by is not None else list(cluster.reported)
    return [event for number in nodes for event in cluster.reported[number] if isinstance(event, kind)]


def other(cluster: Cluster) -> int:
    """A node that is not the controller."""
    return next(number for number in cluster.nodes if number != cluster.controller())


def test_topics_come_grow_and_go(cluster: Cluster) -> None:
    create(cluster, "orders", 2, retention_ms="1000")
    client = cluster.client(cluster.controller() or 0)
    client.send("CreatePartitions", topics=[part("CreatePartitions", "CreatePartitionsTopic", "orders", 5, None)])
    cluster.until(lambda: reported(cluster, PartitionsAdded))
    client.send("DeleteTopics", topic_names=["orders"], timeout_ms=1_000)
    cluster.until(lambda: reported(cluster, TopicDeleted))
    assert reported(cluster, TopicCreated) == [TopicCreated("orders", 2, 3)]
    assert reported(cluster, PartitionsAdded) == [PartitionsAdded("orders", 2, 5)]
    assert reported(cluster, TopicDeleted) == [TopicDeleted("orders", 5)]
    assert reported(cluster, ConfigsChanged) == [], "settings of a new topic are part of its creation"


def test_settings_change(cluster: Cluster) -> None:
    create(cluster, "orders", replicas=1)
    alter(cluster, "orders", {"min.insync.replicas": "2", "retention.ms": "5"})
    settings = [("min.insync.replicas", "2"), ("retention.ms", "5")]
    assert reported(cluster, ConfigsChanged) == [ConfigsChanged(ResourceType.TOPIC, "orders", settings)]
    assert reported(cluster, TooFewReplicas) == [TooFewReplicas("orders", 1, 2)]


def alter(cluster: Cluster, topic: str, settings: dict[str, str]) -> None:
    client = cluster.client(cluster.controller() or 0)
    api = "IncrementalAlterConfigs"
    configs = [part(api, "AlterableConfig", name, 0, value) for name, value in settings.items()]
    client.send(api, resources=[part(api, "AlterConfigsResource", int(ResourceType.TOPIC), topic, configs)])
    cluster.until(lambda: reported(cluster, ConfigsChanged))


def test_a_topic_with_fewer_replicas_than_it_wants_in_sync(cluster: Cluster) -> None:
    create(cluster, "orders", replicas=1, min_insync_replicas="2")
    cluster.until(lambda: reported(cluster, TooFewReplicas))
    assert reported(cluster, TooFewReplicas) == [TooFewReplicas("orders", 1, 2)]


def test_a_killed_broker_is_fenced_others_are_elected_and_it_comes_back(cluster: Cluster) -> None:
    create(cluster, "orders", 30)
    cluster.pass_time(1_000)
    controller, lost = cluster.controller(), other(cluster)
    assert controller is not None
    led = [index for index in range(30) if cluster.leader("orders", index) == lost]
    assert led
    cluster.kill(lost)
    cluster.until(lambda: reported(cluster, BrokerFenced) and reported(cluster, VoterLost))
    assert reported(cluster, BrokerFenced, by=controller) == [BrokerFenced(lost, Why.SILENT, 1_200)]
    elected = [event for event in reported(cluster, LeadersElected) if event.changes[0].before == lost]
    changes = [change for event in elected for change in event.changes]
    assert {change.partition for change in changes} == {f"orders-{index}" for index in led}
    assert all(change.now not in (-1, lost) and change.epoch > 0 for change in changes)
    assert [event.node_id for event in reported(cluster, VoterLost)] == [lost]

    cluster.restart(lost)
    cluster.until(lambda: reported(cluster, BrokerUnfenced)[-1].broker_id == lost and reported(cluster, VoterReturned))
    again = reported(cluster, BrokerRegistered)[-1]
    assert (again.broker_id, again.again) == (lost, True)
    assert reported(cluster, VoterReturned) == [VoterReturned(lost)]


def test_a_broker_that_stops_in_order(cluster: Cluster) -> None:
    create(cluster, "orders", 6)
    cluster.pass_time(1_000)
    leaving = other(cluster)
    cluster.nodes[leaving].leave(cluster.clock.now_ms)
    cluster.until(lambda: cluster.nodes[leaving].departed)
    assert BrokerStopping(leaving) in reported(cluster, BrokerStopping)
    assert [event.why for event in reported(cluster, BrokerFenced)] == [Why.STOPPED]


def test_another_controller_is_reported_by_all(cluster: Cluster) -> None:
    before = cluster.controller()
    assert before is not None
    cluster.kill(before)
    cluster.until(lambda: cluster.controller() not in (None, before))
    cluster.pass_time(1_000)
    now = cluster.controller()
    for number in cluster.nodes:
        last = reported(cluster, ControllerChanged, by=number)[-1]
        assert (last.node_id, last.here) == (now, number == now)


def test_a_voter_with_an_emptied_directory_is_named_by_itself_and_by_the_leader(cluster: Cluster) -> None:
    cluster.pass_time(5_000)  # the leader has written down which directory each voter has
    wiped = other(cluster)
    cluster.kill(wiped)
    cluster.disks[wiped] = SimDisk()
    cluster.restart(wiped)
    cluster.until(lambda: len(reported(cluster, VoterWiped)) == 2)
    cluster.pass_time(60_000)
    assert reported(cluster, VoterWiped, by=wiped) == [VoterWiped(wiped, here=True)]
    assert reported(cluster, VoterWiped, by=cluster.controller()) == [VoterWiped(wiped, here=False)]
    assert f"skidway cluster remove-voter {wiped}" in line_of(VoterWiped(wiped, here=True))


def test_a_node_alone_only_says_that_it_is_new() -> None:
    alone: Any = made(size=1)
    alone.pass_time(5_000)
    assert [type(event) for event in alone.reported[1]] == [FirstStart]
    alone.stop(1)
    alone.restart(1)
    alone.pass_time(5_000)
    assert len(alone.reported[1]) == 1, "it is new only once"
