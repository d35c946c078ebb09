"""Groups move with the partition they are kept in: nothing committed is lost, and only one node answers for them."""

from typing import Any

import pytest
from broker_world import World, part
from nodes_together import Cluster, create, made

from skidway.broker.events import CoordinatorTopicNotCreated
from skidway.groups.placement import partition_of
from skidway.metadata.broker_configs import DRAINED
from skidway.runtime import replicated
from skidway.server.events import EventLog

GROUP = "billing"
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16


def ask(cluster: Cluster, number: int, name: str, **fields: Any) -> Any:
    client = cluster.client(number)
    client.send(name, **fields)
    ((_, reply),) = cluster.until(client.replies)
    return reply


def coordinator(cluster: Cluster, number: int) -> int:
    """Of the group, as this node knows it; -1 if it is not available."""
    (found,) = ask(cluster, number, "FindCoordinator", version=4, coordinator_keys=[GROUP]).coordinators
    assert (found.node_id == -1) == (found.error_code == NOT_AVAILABLE)
    if found.node_id != -1:
        assert (found.host, found.port) == (f"host-{found.node_id}", 9000 + found.node_id)
    return int(found.node_id)


def found(cluster: Cluster) -> int:
    """When all nodes agree on one that lives."""

    def agreed() -> int | None:
        told = {coordinator(cluster, number) for number in cluster.nodes}
        return told.pop() if len(told) == 1 and told <= set(cluster.nodes) else None

    return int(cluster.until(agreed))


def commit_fields(offset: int) -> dict[str, Any]:
    entry = part("OffsetCommit", "OffsetCommitRequestPartition", partition_index=0, committed_offset=offset)
    topics = [part("OffsetCommit", "OffsetCommitRequestTopic", name="t", partitions=[entry])]
    return {"version": 8, "group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": topics}


def commit(cluster: Cluster, number: int, offset: int) -> int:
    reply = ask(cluster, number, "OffsetCommit", **commit_fields(offset))
    return int(reply.topics[0].partitions[0].error_code)


def committed(cluster: Cluster, number: int) -> int:
    topics = [part("OffsetFetch", "OffsetFetchRequestTopic", name="t", partition_indexes=[0])]
    reply = ask(cluster, number, "OffsetFetch", version=7, group_id=GROUP, topics=topics)
    return -int(reply.error_code) if reply.error_code else int(reply.topics[0].partitions[0].committed_offset)


def test_committed_offsets_survive_the_loss_of_their_coordinator() -> None:
    cluster = made()
    create(cluster, "t")
    first = found(cluster)
    for offset in range(1, 11):
        assert commit(cluster, first, offset) == 0
    others = [number for number in cluster.nodes if number != first]
    assert [commit(cluster, number, 99) for number in others] == [NOT_COORDINATOR] * 2
    assert [committed(cluster, number) for number in others] == [-NOT_COORDINATOR] * 2
    cluster.kill(first, power_lost=True)
    second = found(cluster)
    assert second != first
    assert committed(cluster, second) == 10
    assert commit(cluster, second, 11) == 0
    cluster.restart(first)
    cluster.until(cluster.ready)
    cluster.kill(second, power_lost=True)
    third = found(cluster)
    assert committed(cluster, third) == 11


def test_a_coordinator_that_was_cut_off_answers_for_nobody_any_more() -> None:
    cluster = made()
    create(cluster, "t")
    old = found(cluster)
    assert commit(cluster, old, 1) == 0
    cluster.cut(old)
    waiting = cluster.client(old)
    waiting.send("OffsetCommit", **commit_fields(2))
    reading = cluster.client(old)
    topics = [part("OffsetFetch", "OffsetFetchRequestTopic", name="t", partition_indexes=[0])]
    reading.send("OffsetFetch", version=7, group_id=GROUP, topics=topics)
    rest = [number for number in cluster.nodes if number != old]
    new = cluster.until(lambda: next((n for n in rest if coordinator(cluster, n) in rest), None))
    new = coordinator(cluster, new)
    assert commit(cluster, new, 3) == 0
    assert not waiting.replies()
    assert not reading.replies(), "what it saw may not be committed"
    cluster.heal()
    ((_, refused),) = cluster.until(waiting.replies)
    assert refused.topics[0].partitions[0].error_code == NOT_COORDINATOR
    ((_, refused),) = cluster.until(reading.replies)
    assert refused.error_code == NOT_COORDINATOR
    assert committed(cluster, found(cluster)) == 3


def test_nobody_coordinates_while_nobody_leads() -> None:
    cluster = made()
    create(cluster, "t")
    old = found(cluster)
    number = partition_of(GROUP, len(cluster.nodes[old].image.topics["__consumer_offsets"].partitions))
    (other, *_) = [number for number in cluster.nodes if number != old]
    image = cluster.nodes[other].image
    image.topics["__consumer_offsets"].partitions[number].leader = -1
    assert coordinator(cluster, other) == -1


def test_groups_are_kept_on_three_nodes_whatever_other_topics_are() -> None:
    cluster = Cluster()
    cluster.until(cluster.ready)
    create(cluster, "t", replicas=1)
    found(cluster)
    for partition in cluster.nodes[1].image.topics["__consumer_offsets"].partitions:
        assert sorted(partition.replicas) == [1, 2, 3]


def test_before_the_third_node_has_come_no_groups_are_begun() -> None:
    cluster = Cluster()
    cluster.kill(3)
    cluster.until(cluster.ready)
    assert coordinator(cluster, 1) == -1
    assert "__consumer_offsets" not in cluster.nodes[1].image.topics
    cluster.restart(3)
    cluster.until(cluster.ready)
    assert found(cluster) in (1, 2, 3)


def test_while_many_groups_are_loaded_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.peer()
    client.create("t")
    client.call("FindCoordinator", version=4, coordinator_keys=[GROUP])
    for offset in range(50):
        client.call("OffsetCommit", **commit_fields(offset))
    world.node.close(clean=True)
    monkeypatch.setattr(replicated, "LOAD_RECORDS", 5)
    again = World(world.disk)
    again.clock.per_look_ms = 50  # a turn does one thing at most
    client = again.peer()
    topics = [part("OffsetFetch", "OffsetFetchRequestTopic", name="t", partition_indexes=[0])]
    told: list[tuple[int, int]] = []
    while not told or told[-1][0]:
        client.send("OffsetFetch", version=7, group_id=GROUP, topics=topics)
        client.send("ListGroups", version=4)
        client.send("Metadata", topics=[])
        again.end_turn()
        replies = [reply for _, reply in client.replies()]
        assert len(replies) == 3, "everybody is answered at once"
        told.append((replies[0].error_code, replies[1].error_code))
        assert len(told) < 50
    assert set(told[:-1]) == {(LOADING, LOADING)}
    assert len(told) > 5
    assert replies[0].topics[0].partitions[0].committed_offset == 49
    assert [group.group_id for group in replies[1].groups] == [GROUP]


def test_a_coordinator_without_room_for_what_is_committed_gives_way_to_another() -> None:
    """Nobody writes anything else to that node: the refused commits alone have to tell that its disk is full."""
    cluster = made()
    create(cluster, "t", 60)
    first = found(cluster)
    disk = cluster.disks[first]
    disk.capacity = disk.used() + 150_000

    def commit_much() -> int:
        entries = [
            part("OffsetCommit", "OffsetCommitRequestPartition", index, 7, committed_metadata="m" * 4_000)
            for index in range(60)
        ]
        topics = [part("OffsetCommit", "OffsetCommitRequestTopic", name="t", partitions=entries)]
        reply = ask(cluster, found(cluster), "OffsetCommit", **{**commit_fields(7), "topics": topics})
        return int(reply.topics[0].partitions[0].error_code)

    assert commit_much() == NOT_COORDINATOR
    cluster.until(lambda: commit_much() == 0)
    assert committed(cluster, found(cluster)) == 7
    assert found(cluster) != first


def test_why_there_is_no_topic_for_groups_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """By the controller, which knows; clients hear it, and the operator once."""
    cluster = made()
    resources = []
    for number in cluster.nodes:
        entry = part("IncrementalAlterConfigs", "AlterableConfig", DRAINED, 0, "true")
        resources.append(part("IncrementalAlterConfigs", "AlterConfigsResource", 4, str(number), [entry]))
    altered = ask(cluster, 1, "IncrementalAlterConfigs", resources=resources)
    assert [each.error_code for each in altered.responses] == [0, 0, 0]
    for _ in range(2):
        (refused,) = ask(cluster, 1, "FindCoordinator", version=4, coordinator_keys=[GROUP]).coordinators
        assert refused.error_code == NOT_AVAILABLE
        assert "cannot create" in refused.error_message
        assert "brokers 1, 2, 3 are drained" in refused.error_message
    told = [event for event in cluster.reported[1] if isinstance(event, CoordinatorTopicNotCreated)]
    assert len(told) == 2
    events = EventLog(cluster.clock, lambda wait_s, step: None)
    for event in told:
        events.report(event)
    assert len([line for line in caplog.messages if "cannot create the topic for groups" in line]) == 1
