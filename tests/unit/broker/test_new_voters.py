"""Who asks for a new voter may be anybody: the leader of the quorum asks the node itself what it is."""

from typing import Any

import pytest
from broker_world import Peer, part
from nodes_together import Cluster

from skidway.broker.cluster.membership import ASKING_MAX
from skidway.errors import ErrorCode
from skidway.quorum.messages import Fetch
from skidway.quorum.voters import Member

BROKER = frozenset({"broker"})


@pytest.fixture
def cluster() -> Cluster:
    """Three voters and a fourth node, with both roles, that follows the metadata."""
    voters = [(number, f"host-{number}", 9000 + number) for number in (1, 2, 3)]
    cluster = Cluster(4, voters=voters)
    cluster.until(cluster.ready)
    cluster.until(lambda: follows(cluster, 4))
    return cluster


def follows(cluster: Cluster, number: int) -> bool:
    leader = cluster.controller()
    quorum = cluster.nodes[leader].quorum.quorum if leader is not None else None
    return (
        quorum is not None and quorum.followers is not None and quorum.followers.find(me(cluster, number)) is not None
    )


def me(cluster: Cluster, number: int) -> Any:
    return cluster.nodes[number].quorum.quorum.me


def ask(cluster: Cluster, number: int, *, host: str | None = None, port: int | None = None) -> Peer:
    directory = me(cluster, number).directory_id
    return ask_for(cluster, number, directory, host or f"host-{number}", port or 9000 + number)


def ask_for(cluster: Cluster, number: int, directory: bytes, host: str, port: int) -> Peer:
    leader = cluster.controller()
    assert leader is not None
    client = cluster.client(leader)
    listener = part("AddRaftVoter", "Listener", "CONTROLLER", host, port)
    client.send(
        "AddRaftVoter",
        cluster_id=None,
        timeout_ms=5_000,
        voter_id=number,
        voter_directory_id=directory,
        listeners=[listener],
    )
    return client


def answer(cluster: Cluster, client: Peer) -> tuple[ErrorCode, str]:
    ((_, reply),) = cluster.until(client.replies)
    return ErrorCode(reply.error_code), reply.error_message or ""


def voters(cluster: Cluster) -> set[int]:
    leader = cluster.controller()
    assert leader is not None
    return {voter.member.node_id for voter in cluster.nodes[leader].quorum.quorum.voters}


def restart_as_broker(cluster: Cluster, number: int) -> None:
    cluster.stop(number)
    both = cluster.settings
    cluster.settings = {**both, "roles": BROKER}
    cluster.restart(number)
    cluster.settings = both
    cluster.until(cluster.ready)
    cluster.until(lambda: follows(cluster, number))


def test_a_node_with_the_role_becomes_a_voter(cluster: Cluster) -> None:
    assert answer(cluster, ask(cluster, 4)) == (ErrorCode.NONE, "")
    assert voters(cluster) == {1, 2, 3, 4}
    assert not any(wire.link.channel == "once" for wire in cluster.wires)


def test_a_broker_alone_does_not(cluster: Cluster) -> None:
    restart_as_broker(cluster, 4)
    error, message = answer(cluster, ask(cluster, 4))
    assert (error, voters(cluster)) == (ErrorCode.INVALID_REQUEST, {1, 2, 3})
    assert "its roles are broker; restart it with the role controller too" in message
    # And who is refused is no obstacle to others.
    cluster.stop(4)
    cluster.restart(4)
    cluster.until(cluster.ready)
    cluster.until(lambda: follows(cluster, 4))
    assert answer(cluster, ask(cluster, 4)) == (ErrorCode.NONE, "")


def test_the_address_must_be_that_of_the_node(cluster: Cluster) -> None:
    other = next(number for number in (1, 2, 3) if number != cluster.controller())
    error, message = answer(cluster, ask(cluster, 4, host=f"host-{other}", port=9000 + other))
    assert (error, voters(cluster)) == (ErrorCode.INVALID_REQUEST, {1, 2, 3})
    assert message == f"node 4 is not at host-{other}:{9000 + other}: this is broker {other}, not 4"
    error, message = answer(cluster, ask(cluster, 4, host="nowhere"))
    assert (error, voters(cluster)) == (ErrorCode.REQUEST_TIMED_OUT, {1, 2, 3})
    assert "node 4 does not answer at nowhere:9004" in message
    # Where the node really is, is still known.
    leader = cluster.controller()
    assert leader is not None
    assert cluster.nodes[leader].peers.address_of(4) == ("host-4", 9004)


def test_a_node_is_asked_once_at_a_time_and_a_leader_that_resigned_adds_nobody(cluster: Cluster) -> None:
    cluster.settle = lambda: None  # type: ignore[method-assign]  # nothing is carried yet
    first, second = ask(cluster, 4), ask(cluster, 4)
    leader = cluster.controller()
    assert leader is not None
    del cluster.settle
    cluster.nodes[leader].quorum.resign(cluster.clock.now_ms)
    error, message = answer(cluster, second)
    assert (error, "already asking node 4" in message) == (ErrorCode.REQUEST_TIMED_OUT, True)
    assert answer(cluster, first)[0] == ErrorCode.NOT_CONTROLLER
    cluster.until(cluster.controller)
    assert voters(cluster) == {1, 2, 3}


def test_who_keeps_the_leader_asking_keeps_nobody_else_from_being_added(cluster: Cluster) -> None:
    """Up to a few at once; whoever says that it follows the metadata has an address of its own choice asked."""
    leader = cluster.controller()
    assert leader is not None
    node = cluster.nodes[leader]
    invented = range(100, 100 + ASKING_MAX)
    for number in invented:
        quorum = node.quorum.quorum
        fetch = Fetch(Member(number, b"x" * 16), quorum.epoch, quorum.log.end_offset, quorum.log.last_epoch, 0)
        quorum.on_fetch(fetch, cluster.clock.now_ms)
    dial = node.peers.dial
    assert dial is not None
    node.peers.dial = lambda link: None if link.host == "silent" else dial(link)
    for number in invented[:-1]:
        ask_for(cluster, number, b"x" * 16, "silent", 1)
    assert answer(cluster, ask(cluster, 4)) == (ErrorCode.NONE, "")
    assert voters(cluster) == {1, 2, 3, 4}
