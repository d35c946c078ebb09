"""A snapshot is a shorter log with the same end."""

from controller_world import Cluster

from skidway.metadata.controller import Controller
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    AllocateProducerIds,
    AlterOp,
    AlterReassignments,
    ConfigChange,
    DeleteTopics,
    IncrementalAlterConfigs,
    UnregisterBroker,
)
from skidway.metadata.records import from_batches, to_batch
from skidway.metadata.snapshot import records_of


def rebuilt(image: Image) -> Image:
    again = Image()
    for record in from_batches(to_batch(list(records_of(image)), 0)):
        again.apply(record)
    return again


def eventful() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4)
    cluster.create("orders", 1, 2, 3, min_insync_replicas="2", retention_ms="5")
    cluster.create("gone", 1)
    cluster.decide(DeleteTopics([("gone", bytes(16))]))
    cluster.decide(AllocateProducerIds(1))
    cluster.decide(IncrementalAlterConfigs([ConfigChange(4, "", [("log.retention.ms", AlterOp.SET, "7")])]))
    cluster.silence(2, 3)
    cluster.silence(1, 2, 3)
    cluster.decide(AlterReassignments([("orders", [(0, [4, 1])])]))
    cluster.create("other", 4)
    cluster.heartbeat(4, stop=True)
    return cluster


def test_a_snapshot_says_everything_the_log_said() -> None:
    cluster = eventful()
    orders = cluster.partition("orders")
    assert (orders.eligible_leader_replicas, orders.last_known_elr) == ([1, 2, 3], [1])
    assert (orders.adding_replicas, orders.removing_replicas) == ([4], [2, 3])
    assert cluster.controller.image.brokers[4].in_controlled_shutdown
    assert rebuilt(cluster.controller.image) == cluster.controller.image
    assert len(list(records_of(cluster.controller.image))) < len(cluster.log)


def test_an_empty_cluster_is_an_empty_snapshot() -> None:
    assert list(records_of(Image())) == []


def test_the_epoch_of_a_broker_that_is_gone_is_not_given_again() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.silence(2)
    cluster.decide(UnregisterBroker(2))
    assert rebuilt(cluster.controller.image).next_broker_epoch == cluster.epochs[2] + 1


def test_a_controller_goes_on_from_a_snapshot() -> None:
    cluster = eventful()
    cluster.controller = Controller(cluster.random, settings=cluster.settings, image=rebuilt(cluster.controller.image))
    assert set(cluster.controller.index.led_by(-1)) == {
        (topic.id, partition.index)
        for topic in cluster.controller.image.topics.values()
        for partition in topic.partitions
        if partition.leader == -1
    }
    cluster.start(1, clean=True)
    assert cluster.partition("orders").leader == 1
