"""Calls of group coordinators whose records are not committed: answered in bounded time, and not kept for ever.

A disk that takes its time stands for replicas that are cut off.
"""

from typing import Any

import pytest
from broker_world import Peer, World, part

from skidway.broker.coordinators.host import ANSWER_MS
from skidway.errors import ErrorCode

E = ErrorCode
GROUP = "readers"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def peer(world: World) -> Peer:
    peer = world.peer()
    peer.create("t", 1)
    peer.call("FindCoordinator", key_type=0, coordinator_keys=[GROUP], version=4)
    return peer


def send_commit(world: World, peer: Peer, offset: int) -> None:
    entry = part("OffsetCommit", "OffsetCommitRequestPartition", partition_index=0, committed_offset=offset)
    topics = [part("OffsetCommit", "OffsetCommitRequestTopic", name="t", partitions=[entry])]
    fields: dict[str, Any] = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    peer.send("OffsetCommit", version=8, **fields)
    world.end_turn()


def code_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


def test_offsets_that_cannot_be_committed(world: World, peer: Peer) -> None:
    send_commit(world, peer, 7)
    assert peer.replies() == []
    world.pass_time(ANSWER_MS - 1)
    assert peer.replies() == []
    world.pass_time(1)
    assert code_of(peer.reply()) == E.COORDINATOR_NOT_AVAILABLE
    send_commit(world, peer, 8)
    assert code_of(peer.reply()) == E.COORDINATOR_NOT_AVAILABLE, "at once: it would wait behind the first"
    world.settle()
    assert peer.replies() == [], "nobody is answered twice"
    send_commit(world, peer, 9)
    world.settle()
    assert code_of(peer.reply()) == E.NONE, "when something is committed again, all is as it was"


def test_a_member_that_waits_for_others_waits_on(world: World, peer: Peer) -> None:
    """What waits for a rebalance does not wait for a commit."""
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "protocol_type": "consumer",
        "protocols": [part("JoinGroup", "JoinGroupRequestProtocol", name="range", metadata=b"")],
        "version": 3,
    }
    first, second = peer, world.peer()
    first.send("JoinGroup", **fields)
    for _ in range(4):
        world.settle()
        world.pass_time(3_000)
    world.settle()
    assert first.reply().error_code == E.NONE
    second.send("JoinGroup", **fields)
    world.settle()
    for _ in range(4):
        world.pass_time(ANSWER_MS)
        world.settle()
    assert second.replies() == [], "the first member has not joined again"
