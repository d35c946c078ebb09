"""Clients that ask the wrong node, or a node far away, are told where to go; and what a new leader does not say yet."""

from typing import Any

import pytest
from broker_world import Peer, World, batch, part, values
from follower_by_hand import Follower, replicated_topic
from msgspec.structs import replace

from skidway.broker.reads.ends import FOLLOWERS_WAIT_MS
from skidway.errors import ErrorCode

FETCH_WITH_HINTS = 16
FETCH_ANYWHERE = 11


@pytest.fixture
def world() -> World:
    return World(session_timeout_ms=10**9, rack="east")


def fetch(peer: Peer, topic: str, version: int, offset: int = 0, leader_epoch: int = -1, **fields: Any) -> Any:
    asked = part(
        "Fetch",
        "FetchPartition",
        0,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        partition_max_bytes=1_000_000,
    )
    topic_id = peer.world.node.image.topics[topic].id
    peer.send(
        "Fetch",
        version=version,
        topics=[part("Fetch", "FetchTopic", topic=topic, topic_id=topic_id, partitions=[asked])],
        session_epoch=-1,
        max_bytes=10_000_000,
        **fields,
    )
    return peer.reply()


def list_offset(world: World, topic: str, timestamp: int, version: int = 5, replica_id: int = -1) -> Any:
    asked = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=timestamp)
    topics = [part("ListOffsets", "ListOffsetsTopic", topic, [asked])]
    peer = world.peer()
    peer.send("ListOffsets", version=version, replica_id=replica_id, topics=topics)
    world.settle()
    world.pass_time(
        FOLLOWERS_WAIT_MS
    )  # where the followers are about to make more committed, the answer waits for them
    response = peer.reply()
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("replicas", [[2, 1], [2, 3]], ids=["follows it", "has nothing of it"])
def test_who_asks_the_wrong_node_is_told_where_the_leader_is(world: World, replicas: list[int]) -> None:
    for broker in (2, 3):
        Follower(world, broker, rack="west")
    replicated_topic(world, "orders", [replicas])
    peer = world.peer()
    data = part("Produce", "PartitionProduceData", 0, batch(b"a"))
    topics = [part("Produce", "TopicProduceData", "orders", partition_data=[data])]
    produced = peer.call("Produce", version=10, acks=-1, timeout_ms=1000, topic_data=topics)
    entry = produced.responses[0].partition_responses[0]
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (2, 0)
    assert [(node.node_id, node.host, node.rack) for node in produced.node_endpoints] == [(2, "host2", "west")]
    replica = part("Fetch", "ReplicaState", -1, -1)
    if replicas == [2, 3]:
        fetched = fetch(peer, "orders", FETCH_WITH_HINTS, replica_state=replica)
        (found,) = fetched.responses[0].partitions
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found.current_leader.leader_id == 2
        assert [node.port for node in fetched.node_endpoints] == [9092]


def test_an_old_epoch_is_told_the_new_one(world: World) -> None:
    world.peer().create("orders")
    partition = world.partition("orders")
    partition.lead(replace(partition.role, leader_epoch=3, partition_epoch=3), world.clock.now_ms)
    fetched = fetch(world.peer(), "orders", FETCH_WITH_HINTS, leader_epoch=2)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert [node.node_id for node in fetched.node_endpoints] == [1]


def test_an_acknowledgement_that_is_waited_for_ends_with_the_lead(world: World) -> None:
    Follower(world, 2)
    replicated_topic(world, "orders", [[1, 2]], flush="os")
    peer = world.peer()
    peer.produce("orders", batch(b"a"))
    assert peer.replies() == []
    partition = world.partition("orders")
    partition.follow(replace(partition.role, leader=2, leader_epoch=5, partition_epoch=5), world.clock.now_ms)
    world.node.relay.on_role_changed(partition)
    world.settle()
    assert peer.reply().responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_serves_readers_what_it_knows_to_be_committed(world: World) -> None:
    Follower(world, 2)
    replicated_topic(world, "orders", [[2, 1]], flush="os")
    partition = world.partition("orders")
    for offset, value in enumerate((b"a", b"b")):
        partition.fetched(bytes(offset.to_bytes(8, "big") + batch(value)[8:]), world.clock.wall_ms())
    reader = world.peer()
    assert values(fetch(reader, "orders", FETCH_ANYWHERE)) == []
    partition.advance(1)
    assert values(fetch(reader, "orders", FETCH_ANYWHERE)) == [b"a"]
    early = fetch(reader, "orders", FETCH_ANYWHERE - 1).responses[0].partitions[0]
    assert early.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "these readers expect a leader"
    waiting = world.peer()
    waiting.fetch({("orders", 0): 1}, max_wait_ms=500)
    assert waiting.replies() == []
    partition.advance(2)
    world.end_turn()
    assert values(waiting.reply()) == [b"b"]


def test_a_reader_is_sent_to_a_replica_in_its_own_rack(world: World) -> None:
    west = Follower(world, 2, rack="west")
    replicated_topic(world, "orders", [[1, 2]], flush="os", min_insync_replicas="1")
    world.peer().produce("orders", batch(b"a"), acks=1)
    reader = world.peer()

    def preferred(rack: str, offset: int = 0, reader: Peer = reader) -> int:
        response = fetch(reader, "orders", FETCH_ANYWHERE, offset, rack_id=rack)
        return int(response.responses[0].partitions[0].preferred_read_replica)

    assert preferred("west") == -1, "nobody knows yet what it has"
    west.ask({("orders", 0): 0})
    west.ask({("orders", 0): 1})
    assert preferred("west") == 2
    assert preferred("west", offset=1) == 2
    assert preferred("west", reader=world.peer("OUTSIDE")) == -1, "the replica has no listener that this reader uses"
    assert preferred("east") == -1
    assert preferred("") == -1
    assert preferred("north") == -1
    west.heartbeat(want_fence=True)
    assert preferred("west") == -1, "it is not in sync any more"


def test_a_follower_with_readers_hears_at_once_of_what_is_committed(world: World) -> None:
    west, north = Follower(world, 2, rack="west"), Follower(world, 3, rack="north")
    replicated_topic(world, "orders", [[1, 2, 3]], flush="os")

    def write_and_acknowledge(end: int) -> None:
        """The one in the west has the record and waits for the next, when the last one says that it has it too."""
        world.peer().produce("orders", batch(b"a"), acks=1)
        world.end_turn()
        for follower in (west, north):
            follower.ask({("orders", 0): end - 1})
        west.fetch({("orders", 0): end}, max_wait_ms=500)
        world.end_turn()
        north.ask({("orders", 0): end})
        world.end_turn()

    for follower in (west, north):
        follower.ask({("orders", 0): 0})
    write_and_acknowledge(1)
    assert west.peer.replies() == [], "nobody needs it"
    world.pass_time(500)
    assert west.reply()[("orders", 0)].high_watermark == 1
    fetch(world.peer(), "orders", FETCH_ANYWHERE, 0, rack_id="west")
    write_and_acknowledge(2)
    assert west.reply()[("orders", 0)].high_watermark == 2


def test_a_new_leader_does_not_tell_an_end_that_may_go_back(world: World) -> None:
    second = Follower(world, 2)
    replicated_topic(world, "orders", [[1, 2]], flush="os")
    second.ask({("orders", 0): 0})
    world.peer().produce("orders", batch(b"a"), acks=1)
    partition = world.partition("orders")
    assert list_offset(world, "orders", -1).offset == 0
    partition.lead(replace(partition.role, leader_epoch=1, partition_epoch=1), world.clock.now_ms)
    assert list_offset(world, "orders", -1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(world, "orders", -1, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert list_offset(world, "orders", 5).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(world, "orders", -2).offset == 0
    assert list_offset(world, "orders", -1, replica_id=2).offset == 1
    second.ask({("orders", 0): 1})
    assert list_offset(world, "orders", -1).offset == 1
