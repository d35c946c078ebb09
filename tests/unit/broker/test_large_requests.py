"""Requests that are worked on in several turns: what holds although other things happen in between."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from bench.worst_requests import Worst, worst_requests
from broker_world import KEYS, Peer, part
from counted_turns import TURN_CALLS_MAX, Turns

from skidway.broker.api.connection import Connection
from skidway.errors import ErrorCode
from skidway.log.bounds import Bound
from skidway.records.batch import iter_headers
from skidway.steps import Steps
from skidway.wire.release import release
from skidway.wire.source import STEP_ELEMENTS

PARTITIONS = 1_200
"""More than a machine decides about in one go."""
ALL = range(PARTITIONS)


@pytest.fixture(scope="module")
def wide() -> Turns:
    turns = Turns(PARTITIONS)
    turns.owner.call("FindCoordinator", version=4, key_type=0, coordinator_keys=["g"])
    return turns


@pytest.fixture
def turns(wide: Turns) -> Iterator[Turns]:
    wide.longest = 0
    yield wide
    for _ in range(1_000):  # what was answered is still being freed
        if not wide.world.node.world.slices.under_way:
            return
        wide.turn()
    raise AssertionError("something of what was asked goes on for ever")


def commit_frame(peer: Peer, group: str, offset: int, metadata: str = "") -> bytes:
    entries = [part("OffsetCommit", "OffsetCommitRequestPartition", index, offset, -1, metadata) for index in ALL]
    topics = [part("OffsetCommit", "OffsetCommitRequestTopic", "wide", partitions=entries)]
    return peer.frame("OffsetCommit", version=9, group_id=group, topics=topics)


def commit(turns: Turns, group: str, offset: int, metadata: str = "") -> set[int]:
    """Of all partitions; the codes in the answer."""
    peer = turns.world.peer()
    peer.give(commit_frame(peer, group, offset, metadata))
    while not peer.connection.outbox:
        turns.turn()
    (topic,) = peer.reply().topics
    assert len(topic.partitions) == PARTITIONS
    return {answer.error_code for answer in topic.partitions}


def fetch_all(version: int, group: str) -> dict[str, Any]:
    if version < 8:
        return {"version": version, "group_id": group, "topics": None}
    return {"version": version, "groups": [part("OffsetFetch", "OffsetFetchRequestGroup", group, topics=None)]}


def fetched(reply: Any, version: int) -> list[tuple[int, int]]:
    (topic,) = reply.topics if version < 8 else reply.groups[0].topics
    return [(each.partition_index, each.committed_offset) for each in topic.partitions]


def batches_of_groups(turns: Turns) -> int:
    """Record batches in the log that groups are kept in."""
    count = 0
    for partition in turns.world.node.partitions.of_topic("__consumer_offsets"):
        found = partition.log.read(partition.log.start_offset, 100 << 20, Bound.END)
        if found is not None:
            count += len(list(iter_headers(found.read())))
    return count


def test_a_commit_of_very_many_offsets_is_one_record_batch(turns: Turns) -> None:
    """So a crash, or a rebalance while it is worked on, leaves all of its offsets or none."""
    before = batches_of_groups(turns)
    assert commit(turns, "one-batch", 7) == {ErrorCode.NONE}
    assert batches_of_groups(turns) == before + 1
    assert turns.longest < TURN_CALLS_MAX


def test_a_commit_that_no_batch_has_room_for_is_refused_as_a_whole(turns: Turns) -> None:
    before = batches_of_groups(turns)
    assert commit(turns, "too-large", 7, metadata="m" * 1_000) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert batches_of_groups(turns) == before
    found = turns.owner.call("OffsetFetch", **fetch_all(7, "too-large"))
    assert found.topics == []


@pytest.mark.parametrize("version", [7, 8])
def test_a_fetch_of_very_many_offsets_shows_one_moment_although_commits_go_on(turns: Turns, version: int) -> None:
    group = f"moment-{version}"
    commit(turns, group, 1)
    peer = turns.world.peer()
    turns.count(peer.give, peer.frame("OffsetFetch", **fetch_all(version, group)))
    assert not peer.connection.outbox, "it takes several turns"
    assert commit(turns, group, 2) == {ErrorCode.NONE}
    assert not peer.connection.outbox, "the commit was quicker"
    while not peer.connection.outbox:
        turns.turn()
    assert fetched(peer.reply(), version) == [(index, 1) for index in ALL]
    assert turns.longest < TURN_CALLS_MAX
    assert fetched(turns.owner.call("OffsetFetch", **fetch_all(version, group)), version) == [
        (index, 2) for index in ALL
    ]


def test_an_election_for_all_partitions_is_decided_in_parts(turns: Turns) -> None:
    peer = turns.world.peer()
    before = turns.clock.calls
    turns.count(peer.give, peer.frame("ElectLeaders", version=2, topic_partitions=None, timeout_ms=1000))
    while not peer.connection.outbox:
        turns.turn()
    all_calls = turns.clock.calls - before
    answer = peer.reply()
    assert answer.error_code == 0
    assert {result.topic for result in answer.replica_election_results} >= {"wide", "small-0"}
    assert not any(result.partition_result for result in answer.replica_election_results), "all lead that should"
    assert turns.longest < 0.6 * all_calls


def test_changes_of_very_many_in_sync_sets_are_decided_in_parts(turns: Turns) -> None:
    node = turns.world.node
    states = [part("AlterPartition", "BrokerState", node.settings.node_id, node.broker_epoch)]
    entries = [
        part("AlterPartition", "RequestPartitionData", index, 0, new_isr_with_epochs=states, partition_epoch=0)
        for index in ALL
    ]
    topics = [part("AlterPartition", "RequestTopicData", turns.what.topic_id, entries)]
    peer = turns.world.peer()
    fields = {"broker_id": node.settings.node_id, "broker_epoch": node.broker_epoch, "topics": topics}
    before = turns.clock.calls
    turns.count(peer.give, peer.frame("AlterPartition", version=3, **fields))
    while not peer.connection.outbox:
        turns.turn()
    all_calls = turns.clock.calls - before
    (topic,) = peer.reply().topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(index, 0) for index in ALL]
    assert turns.longest < 0.6 * all_calls


def long_request(turns: Turns) -> Worst:
    return next(
        worst for worst in worst_requests(turns.what, 10_000, KEYS["ListOffsets"]) if worst.shape == "deep topics"
    )


def begin_long(turns: Turns, more: bytes = b"") -> Connection:
    connection = turns.begin(long_request(turns).frame() + more)
    assert connection.work is not None
    return connection


def test_replies_come_in_the_order_of_requests_although_the_first_is_answered_in_parts(turns: Turns) -> None:
    peer = turns.world.peer()
    first = long_request(turns).frame(correlation_id=1)
    peer.asked.append((1, "ListOffsets", long_request(turns).version))
    peer.correlation_id = 1
    turns.count(peer.give, first + peer.frame("ApiVersions") + peer.frame("Metadata", topics=None))
    assert peer.connection.work is not None
    found: list[int] = []
    while len(found) < 3:
        turns.turn()
        peer.give(b"")
        found += [correlation_id for correlation_id, _ in peer.replies()]
    assert found == [1, 2, 3]


def test_a_connection_that_closes_ends_what_was_worked_on_for_it(turns: Turns) -> None:
    node = turns.world.node
    connection = begin_long(turns)
    turns.turn()
    assert node.world.slices.under_way == 1
    assert node.has_long_work
    connection.closed()
    assert node.world.slices.under_way == 0
    assert not node.has_long_work
    before = turns.clock.calls
    turns.turn()
    assert turns.clock.calls - before < 1_000, "nothing goes on"
    assert not connection.outbox


@pytest.mark.parametrize("version", [7, 8])
def test_a_connection_that_closes_ends_a_reply_that_is_made_in_parts(turns: Turns, version: int) -> None:
    group = f"closing-{version}"
    commit(turns, group, 1)
    peer = turns.world.peer()
    turns.count(peer.give, peer.frame("OffsetFetch", **fetch_all(version, group)))
    turns.turn()
    assert turns.world.node.world.slices.under_way == 1
    peer.connection.closed()
    assert turns.world.node.world.slices.under_way == 0


def test_others_are_served_in_every_turn_of_a_long_request(turns: Turns) -> None:
    good = turns.world.peer()
    connection = begin_long(turns)
    assert turns.finish(connection, good) > 5, "the good client was answered in each of them"
    connection.closed()


@pytest.mark.parametrize("name", ["ListOffsets", "DescribeGroups"])
def test_a_large_request_and_its_reply_are_freed_in_steps(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing may refer to them at their end but the work itself, or they would be freed in one go."""
    elements = 10_000
    freed: dict[str, int] = {}

    def counted(held: list[Any]) -> Steps[None]:
        kind = type(held[0]).__name__
        freed[kind] = 0
        for step in release(held):
            freed[kind] += 1
            yield step

    monkeypatch.setattr("skidway.broker.api.connection.release", counted)
    shape = "deep topics" if name == "ListOffsets" else "broad groups"
    asked = next(worst for worst in worst_requests(turns.what, elements, KEYS[name]) if worst.shape == shape)
    connection = turns.begin(asked.frame())
    turns.finish(connection, turns.world.peer())
    while turns.world.node.world.slices.under_way:
        turns.turn()
    assert set(freed) == {f"{name}Request", f"{name}Response"}
    assert min(freed.values()) >= elements // STEP_ELEMENTS
    connection.closed()


def test_log_dirs_are_described_for_the_partitions_that_exist(turns: Turns) -> None:
    asked = [
        part("DescribeLogDirs", "DescribableLogDirTopic", "wide", [0, 7, PARTITIONS, -1]),
        part("DescribeLogDirs", "DescribableLogDirTopic", "unknown", list(ALL)),
    ]
    (directory,) = turns.owner.call("DescribeLogDirs", topics=asked).results
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in directory.topics] == [
        ("wide", [0, 7])
    ]


def test_topics_that_cannot_be_deleted_leave_nothing_to_the_garbage_collector(turns: Turns) -> None:
    count = 300
    asked = [part("DeleteTopics", "DeleteTopicState", f"unknown-{number}") for number in range(count)]
    fields = {"version": 6, "topics": asked, "timeout_ms": 1000}
    turns.owner.call("DeleteTopics", **fields)
    gc.collect()
    gc.disable()
    try:
        turns.owner.call("DeleteTopics", **fields)
        assert gc.collect() < count
    finally:
        gc.enable()
