"""A node whose metadata is gone from its data directory does not start as if it had never been in a cluster, and one
that lost its vote does not vote twice."""

import pytest
from broker_world import World, batch, part
from nodes_together import Cluster, create, made, produce

from skidway.errors import StorageError
from skidway.log.logs import Logs
from skidway.metadata.topic_names import CLUSTER_METADATA
from skidway.quorum.wire import METADATA_TOPIC_ID

DIRECTORY = "__cluster_metadata-0"
TOPICS = "abcdef"


def test_the_only_node_refuses_to_begin_another_cluster_in_its_data_directory() -> None:
    world = World()
    world.peer().create("t", flush="sync")
    world.settle()
    world.peer().produce("t", batch(b"a"))
    world.settle()
    world.disk.remove_tree(DIRECTORY)
    for _ in range(2):
        with pytest.raises(StorageError, match="its metadata is lost"):
            World(disk=world.disk)
    assert "t-0" in world.disk.list(""), "no topic was set aside"


@pytest.mark.parametrize("lost", [".log", ""], ids=["segments", "directory"])
def test_a_voter_refuses_to_start_without_what_it_had_stored(lost: str) -> None:
    cluster = made()
    create(cluster, "t")
    assert produce(cluster, "t", b"a") == 0
    cluster.kill(2)
    disk = cluster.disks[2]
    for name in disk.list(DIRECTORY):
        if name.endswith(lost):
            disk.remove(f"{DIRECTORY}/{name}")
    if not lost:
        disk.remove_tree(DIRECTORY)
    for _ in range(2):
        with pytest.raises(StorageError, match="its metadata is lost"):
            cluster.restart(2)
        del cluster.nodes[2]
    assert produce(cluster, "t", b"b") == 0, "the others go on"


def test_a_lost_vote_is_read_from_its_copy_and_said() -> None:
    cluster = made()
    create(cluster, "t")
    cluster.kill(2)
    voted = cluster.disks[2].read("quorum-state")
    cluster.disks[2].remove(f"{DIRECTORY}/quorum-state")
    cluster.restart(2)
    assert any("quorum-state is missing; the copy" in line for line in cluster.told[2])
    remembered = cluster.nodes[2].quorum.quorum.remembered
    assert f'"leaderEpoch":{remembered.epoch}' in voted.decode()


def test_a_voter_that_lost_both_copies_of_its_vote_refuses_to_start() -> None:
    cluster = made()
    create(cluster, "t")
    cluster.kill(2)
    cluster.disks[2].remove(f"{DIRECTORY}/quorum-state")
    cluster.disks[2].remove("quorum-state")
    with pytest.raises(StorageError, match="could vote twice"):
        cluster.restart(2)


def test_a_node_that_lost_power_before_any_metadata_was_synced_starts_again() -> None:
    """The others had committed its registration, so its last run had an epoch."""
    cluster = made()
    disk = cluster.disks[2]
    cluster.kill(2, power_lost=True)
    for name in disk.list(DIRECTORY):
        if name.endswith(".log"):
            disk.open(f"{DIRECTORY}/{name}").truncate(0)
    for name in [name for name in disk.list("") if name.endswith("-checkpoint")]:
        disk.remove(name)
    cluster.restart(2)
    cluster.until(cluster.ready)


def with_unsynced_metadata() -> tuple[Cluster, int]:
    """A voter that was slow fetches what the other two have committed meanwhile, and hears that with it."""
    cluster = made()
    controller = cluster.controller()
    assert controller is not None
    slow = min(number for number in cluster.nodes if number != controller)
    cluster.slow_syncs.add(slow)
    for topic in TOPICS:
        client = cluster.client(controller)
        asked = part("CreateTopics", "CreatableTopic", topic, 1, 3, configs=[])
        client.send("CreateTopics", topics=[asked], timeout_ms=5000)
        cluster.until(client.replies)
    cluster.finish_syncs(slow)
    cluster.slow_syncs.add(slow)
    cluster.until(lambda: set(TOPICS) <= set(cluster.nodes[slow].image.topics))
    log = cluster.nodes[slow].quorum.log
    assert log.synced_offset < log.high_watermark
    return cluster, slow


def save(logs: Logs) -> None:
    ticket = logs.begin_save()
    assert ticket is not None
    ticket.run()
    logs.finish_save(ticket)


def test_committed_metadata_that_was_not_synced_is_not_saved_as_known() -> None:
    cluster, slow = with_unsynced_metadata()
    node = cluster.nodes[slow]
    save(node.logs)
    saved = Logs(cluster.disks[slow]).committed_in(CLUSTER_METADATA, 0, METADATA_TOPIC_ID)
    assert saved == node.quorum.log.synced_offset


def test_a_voter_that_lost_committed_metadata_before_its_sync_starts_and_fetches_it_again() -> None:
    cluster, slow = with_unsynced_metadata()
    save(cluster.nodes[slow].logs)
    cluster.slow_syncs.discard(slow)
    cluster.kill(slow, power_lost=True)
    cluster.restart(slow)
    cluster.until(cluster.ready)
    assert set(TOPICS) <= set(cluster.nodes[slow].image.topics)
