"""Replicas that wait for metadata: whoever can connect can say it is one, so they are bounded and forgotten in time."""

from collections.abc import Callable
from typing import Any

import pytest
from broker_world import Peer, World, part
from nodes_together import made

from skidway.broker.cluster import quorum_host
from skidway.broker.cluster.peers import Link
from skidway.broker.cluster.quorum_host import EPOCH_LEAP_MAX
from skidway.errors import ErrorCode
from skidway.quorum.wire import METADATA_TOPIC, METADATA_TOPIC_ID

WAIT_MS = 10_000


def metadata_fetch(world: World, replica: int, **said: Any) -> dict[str, Any]:
    """One that has everything there is."""
    quorum = world.node.quorum.quorum
    asked = {
        "current_leader_epoch": quorum.epoch,
        "fetch_offset": quorum.log.end_offset,
        "last_fetched_epoch": quorum.log.last_epoch,
        "high_watermark": quorum.high_watermark,
        **said,
    }
    topic = part(
        "Fetch", "FetchTopic", topic_id=METADATA_TOPIC_ID, partitions=[part("Fetch", "FetchPartition", **asked)]
    )
    state = part("Fetch", "ReplicaState", replica, -1)
    return {"version": 18, "topics": [topic], "replica_state": state, "max_wait_ms": WAIT_MS, "session_epoch": -1}


def wait_for_news(world: World, replica: int) -> Peer:
    peer = world.peer()
    peer.send("Fetch", **metadata_fetch(world, replica))
    world.end_turn()
    return peer


def test_news_are_told_to_all_who_wait() -> None:
    world = World()
    peers = [wait_for_news(world, replica) for replica in range(10, 20)]
    assert all(peer.replies() == [] for peer in peers)
    world.peer().create("news")
    for peer in peers:
        assert peer.reply().responses[0].partitions[0].records


def test_who_waits_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_host, "WAITING_MAX", 5)
    world = World()
    peers = [wait_for_news(world, replica) for replica in range(10, 18)]
    assert [len(peer.replies()) for peer in peers] == [1, 1, 1, 0, 0, 0, 0, 0]
    world.pass_time(WAIT_MS)
    assert [len(peer.replies()) for peer in peers] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_who_hangs_up_is_waited_for_no_longer() -> None:
    world = World()
    timers = len(world.node.timers)
    peers = [wait_for_news(world, replica) for replica in range(10, 20)]
    assert len(world.node.timers) == timers + 10
    for peer in peers:
        peer.connection.closed()
    assert len(world.node.timers) == timers


def test_an_epoch_far_ahead_is_not_believed() -> None:
    world = World()
    quorum = world.node.quorum.quorum
    before = quorum.epoch
    far = metadata_fetch(world, 10, current_leader_epoch=before + EPOCH_LEAP_MAX + 1)
    assert world.peer().call("Fetch", **far).error_code == ErrorCode.INVALID_REQUEST
    assert (quorum.epoch, quorum.leads) == (before, True)
    near = metadata_fetch(world, 10, current_leader_epoch=before + EPOCH_LEAP_MAX)
    assert world.peer().call("Fetch", **near).error_code == ErrorCode.NONE
    assert quorum.epoch >= before + EPOCH_LEAP_MAX


def test_a_stranger_that_says_it_leads_is_not_asked_for_metadata() -> None:
    """It could say anything: that all topics are deleted, for example."""
    cluster = made()
    dialled: list[tuple[str, int]] = []

    def listen_in(dial: Callable[[Link], None]) -> Callable[[Link], None]:
        def note(link: Link) -> None:
            dialled.append((link.host, link.port))
            dial(link)

        return note

    for node in cluster.nodes.values():
        assert node.peers.dial is not None
        node.peers.dial = listen_in(node.peers.dial)
    epoch = max(node.quorum.quorum.epoch for node in cluster.nodes.values()) + 1
    begun = part("BeginQuorumEpoch", "RequestPartitionData", leader_id=77, leader_epoch=epoch)
    topic = part("BeginQuorumEpoch", "RequestTopicData", topic_name=METADATA_TOPIC, partitions=[begun])
    endpoint = part("BeginQuorumEpoch", "LeaderEndpoint", name="CONTROLLER", host="stranger", port=666)
    said: dict[str, Any] = {"version": 1, "topics": [topic], "leader_endpoints": [endpoint]}
    for number, node in cluster.nodes.items():
        answer = cluster.client(number).call("BeginQuorumEpoch", voter_id=number, **said)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert node.quorum.quorum.epoch == epoch
        assert node.quorum.leader_id != 77
    cluster.until(cluster.controller)
    cluster.pass_time(10_000)
    assert ("stranger", 666) not in dialled
    assert [node.peers.address_of(77) for node in cluster.nodes.values()] == [None] * 3
    assert cluster.controller() in (1, 2, 3)
