"""A broker that an operator keeps empty: nothing new is placed on it, unless somebody names it."""

import pytest
from controller_world import SETTINGS, Cluster

from skidway.errors import ErrorCode
from skidway.metadata.broker_configs import DRAINED, describe_broker
from skidway.metadata.config_keys import ConfigSource, Defaults, ResourceType
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    AlterOp,
    AlterReassignments,
    ConfigChange,
    ConfigsAltered,
    CreatePartitions,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    UnregisterBroker,
)
from skidway.metadata.snapshot import records_of


@pytest.fixture
def cluster() -> Cluster:
    """Four brokers, the last of them drained."""
    cluster = Cluster()
    cluster.start(1, 2, 3, 4)
    assert not drain(cluster, "4").error
    return cluster


def drain(cluster: Cluster, broker: str, value: str = "true") -> ConfigsAltered:
    change = ConfigChange(ResourceType.BROKER, broker, [(DRAINED, AlterOp.SET, value)])
    [altered] = cluster.decide(IncrementalAlterConfigs([change]))
    return altered


def undo(cluster: Cluster, broker: str) -> None:
    change = ConfigChange(ResourceType.BROKER, broker, [(DRAINED, AlterOp.DELETE, None)])
    assert not cluster.decide(IncrementalAlterConfigs([change]))[0].error


def holders(cluster: Cluster, topic: str) -> set[int]:
    return {broker for partition in cluster.controller.image.topics[topic].partitions for broker in partition.replicas}


def test_new_topics_and_new_partitions_leave_it_out(cluster: Cluster) -> None:
    assert not cluster.decide(CreateTopics([NewTopic("orders", 8, 3)]))[0].error
    assert holders(cluster, "orders") == {1, 2, 3}
    assert not cluster.decide(CreatePartitions([MorePartitions("orders", 16)]))[0].error
    assert holders(cluster, "orders") == {1, 2, 3}


def test_it_stays_drained_over_restarts_snapshots_and_controllers(cluster: Cluster) -> None:
    cluster.silence(4)
    cluster.start(4)
    cluster.elsewhere()
    assert not cluster.decide(CreateTopics([NewTopic("orders", 8, 3)]))[0].error
    assert holders(cluster, "orders") == {1, 2, 3}
    shortened = Image()
    for record in records_of(cluster.controller.image):
        shortened.apply(record)
    assert shortened.config(ResourceType.BROKER, "4") == {DRAINED: "true"}


def test_where_the_others_do_not_suffice_the_refusal_names_it(cluster: Cluster) -> None:
    [refused] = cluster.decide(CreateTopics([NewTopic("orders", 1, 4)]))
    assert refused.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 3 other broker(s) are registered; broker 4 is drained" in (refused.message or "")
    cluster.decide(CreateTopics([NewTopic("wide", assignments=[(0, [1, 2, 3, 4])])]))
    [not_grown] = cluster.decide(CreatePartitions([MorePartitions("wide", 2)]))
    assert not_grown.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "broker 4 is drained" in (not_grown.message or "")


def test_whoever_names_it_gets_it(cluster: Cluster) -> None:
    cluster.create("pinned", 4, 1)
    assert cluster.partition("pinned").replicas == [4, 1]
    cluster.create("orders", 1, 2)
    [(_, [moved])] = cluster.decide(AlterReassignments([("orders", [(0, [4, 2])])]))
    assert not moved.error
    assert cluster.partition("orders").adding_replicas == [4]
    # It leads what it has: being drained is about what is new.
    cluster.silence(4)
    cluster.start(4)
    assert not cluster.alter("pinned", 1, 4).error
    assert cluster.partition("pinned").leader == 1
    cluster.decide(ElectLeaders(ElectionType.PREFERRED, [("pinned", [0])]))
    assert cluster.partition("pinned").leader == 4


def test_taken_back_it_is_one_of_them_again(cluster: Cluster) -> None:
    undo(cluster, "4")
    assert not cluster.decide(CreateTopics([NewTopic("orders", 8, 4)]))[0].error
    assert holders(cluster, "orders") == {1, 2, 3, 4}
    assert cluster.controller.image.configs == {}
    drain(cluster, "4")
    drain(cluster, "4", "false")
    assert not cluster.decide(CreateTopics([NewTopic("more", 8, 4)]))[0].error


def test_internal_topics_are_as_safe_as_the_others_make_them() -> None:
    cluster = Cluster(settings=type(SETTINGS)(brokers_expected=3))
    cluster.start(1, 2, 3)
    drain(cluster, "3")
    [created] = cluster.decide(CreateTopics([NewTopic("__consumer_offsets", 4)]))
    assert (created.error, created.replication_factor) == (ErrorCode.NONE, 2)
    assert holders(cluster, "__consumer_offsets") == {1, 2}


def test_its_settings_go_with_it(cluster: Cluster) -> None:
    cluster.silence(4)
    cluster.decide(UnregisterBroker(4))
    assert cluster.controller.image.configs == {}
    cluster.start(4)
    assert not cluster.decide(CreateTopics([NewTopic("orders", 8, 4)]))[0].error


def test_room_on_drained_brokers_does_not_count(cluster: Cluster) -> None:
    for broker in "123":
        drain(cluster, broker)
    [refused] = cluster.decide(CreateTopics([NewTopic("orders", 1, 1)]))
    assert refused.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "brokers 1, 2, 3, 4 are drained and take no new replicas" in (refused.message or "")


@pytest.mark.parametrize(
    ("broker", "value", "error"),
    [
        ("4", "maybe", ErrorCode.INVALID_REQUEST),
        ("", "true", ErrorCode.INVALID_REQUEST),
        ("9", "true", ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_what_makes_no_sense_is_refused(cluster: Cluster, broker: str, value: str, error: ErrorCode) -> None:
    assert drain(cluster, broker, value).error == error


def test_it_is_shown_among_the_settings_of_a_broker() -> None:
    [entry] = describe_broker(names=[DRAINED])
    assert (entry.value, entry.source, entry.read_only) == ("false", ConfigSource.DEFAULT, False)
    [entry] = describe_broker(Defaults(node={DRAINED: "true"}), [DRAINED])
    assert (entry.value, entry.source) == ("true", ConfigSource.DYNAMIC_BROKER)
