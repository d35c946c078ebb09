"""What small requests cost: counted in calls of Python functions, which hardly depend on the machine."""

import sys
from types import FrameType
from typing import Any

from broker_world import KEYS, Peer, World, part


def calls(peer: Peer, frame: bytes) -> int:
    """From the frame to what is in the outbox, without the end of the turn."""
    count = 0

    def note(running: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        peer.give(frame)
    finally:
        sys.setprofile(None)
    return count


def commit_frame(peer: Peer) -> bytes:
    offset = part("OffsetCommit", "OffsetCommitRequestPartition", 0, 1234)
    topics = [part("OffsetCommit", "OffsetCommitRequestTopic", "orders", partitions=[offset])]
    return peer.frame("OffsetCommit", version=7, group_id="shop", topics=topics)


def test_a_commit_of_one_offset() -> None:
    world = World()
    peer = world.peer()
    peer.create("orders", flush="os")
    peer.call("FindCoordinator", version=1, key="shop", key_type=0)
    for _ in range(2):
        frame = commit_frame(peer)
        count = calls(peer, frame)
        world.settle()
        assert peer.reply().topics[0].partitions[0].error_code == 0
    assert count <= 110


def test_api_versions() -> None:
    peer = World().peer()
    for _ in range(2):
        count = calls(peer, peer.frame("ApiVersions", version=0))
        assert len(peer.reply().api_keys) > 50
    assert count <= 30


def counted(name: str, version: int, **fields: Any) -> int:
    """Of a request about the only topic, which has one partition and nothing in it, once everything is loaded."""
    peer = World().peer()
    peer.create("orders", flush="os")
    peer.call("FindCoordinator", version=1, key="shop", key_type=0)
    count = 0
    for _ in range(2):
        count = calls(peer, peer.frame(name, version=version, **fields))
        peer.world.settle()
        peer.reply()
    assert peer.world.node.routes[KEYS[name], version].waits.count == 0, "it was answered in one go"
    return count


def test_metadata_of_one_topic() -> None:
    topics = [part("Metadata", "MetadataRequestTopic", name="orders")]
    assert counted("Metadata", version=9, topics=topics) <= 45


def test_a_coordinator_is_found() -> None:
    assert counted("FindCoordinator", version=2, key="shop", key_type=0) <= 24


def test_the_end_of_a_partition_is_told() -> None:
    partition = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=-1)
    topics = [part("ListOffsets", "ListOffsetsTopic", "orders", [partition])]
    assert counted("ListOffsets", version=7, replica_id=-1, topics=topics) <= 25


def test_offsets_of_a_group() -> None:
    topics = [part("OffsetFetch", "OffsetFetchRequestTopic", "orders", [0])]
    assert counted("OffsetFetch", version=5, group_id="shop", topics=topics) <= 62


def test_a_fetch_at_the_end() -> None:
    partition = part("Fetch", "FetchPartition", 0, fetch_offset=0, partition_max_bytes=1_000)
    topics = [part("Fetch", "FetchTopic", "orders", partitions=[partition])]
    assert counted("Fetch", version=11, session_epoch=-1, topics=topics) <= 38


def test_a_request_that_is_over_after_its_first_steps_is_no_work_of_more_turns() -> None:
    peer = World().peer()
    peer.create("orders")
    peer.give(peer.frame("Metadata", topics=None))
    assert peer.connection.work is None
    assert peer.reply().topics[0].name == "orders"
    assert peer.connection.node.routes[3, 12].waits.count == 0, "it was answered in one go"
