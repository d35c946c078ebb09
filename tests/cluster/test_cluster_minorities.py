"""Fewer than min.insync.replicas, or cut off from the rest: no acknowledgement, and no loss."""

import pytest
from cluster_calls import (
    ACKS_ALL,
    NAMED_PRODUCE,
    await_leader,
    connect,
    described,
    produce_request,
    produce_to,
    produced,
)
from cluster_history import read_all
from loaded import loaded
from replica_files import await_in_sync

from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError
from skidway.errors import ErrorCode
from skidway.testing import Cluster
from waiting import eventually

REFUSED = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
NOT_ACKNOWLEDGED = REFUSED | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def answered_well(connection: Connection) -> bool:
    """Whether the produce on its way is acknowledged. A node that hangs up acknowledges nothing."""
    try:
        code = produced(connection)
    except ClientError:
        return False
    assert code == ErrorCode.NONE or code in NOT_ACKNOWLEDGED, code
    return code == ErrorCode.NONE


def acknowledged(connection: Connection, topic: str, value: bytes) -> bool:
    connection.send(produce_request(topic, 0, value, ACKS_ALL, 4_000), version=NAMED_PRODUCE)
    return answered_well(connection)


def test_two_nodes_down_stop_writes_until_they_return(cluster: Cluster, topic: str) -> None:
    """Both followers leave cleanly, so that the leader knows that it is alone in the in-sync set."""
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        followers = [node for node in cluster.brokers if node != leader]
        cluster.stop(*followers)
        with connect(cluster, leader) as connection:
            answers = {produce_to(connection, topic, 0, b"intruder:%d:" % number) for number in range(3)}
            assert answers <= REFUSED, answers
            assert produce_to(connection, topic, 0, b"intruder:9:", acks=1) in REFUSED | {ErrorCode.NONE}
        cluster.start(*followers)
        load.history.sent[topic, 0].add(b"intruder:9:")
        await_in_sync(cluster, load.places)


@pytest.mark.chaos
def test_two_nodes_killed_stop_writes_until_they_return(cluster: Cluster, topic: str) -> None:
    """Nobody is left to shrink the in-sync set: the leader waits for replicas that do not answer."""
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        followers = [node for node in cluster.brokers if node != leader]
        cluster.kill(*followers)
        told = load.history.count
        for number in range(3):
            value = b"intruder:%d:" % number
            load.history.sent[topic, 0].add(value)
            with connect(cluster, leader) as connection:
                assert not acknowledged(connection, topic, value)
        # What was on its way when they went may have been acknowledged still.
        assert load.history.count - told < 100
        cluster.start(*followers, wait=False)
        load.goes_on()
        await_in_sync(cluster, load.places)


@pytest.mark.parametrize("ways", ["both", "outward", pytest.param("inward", marks=pytest.mark.chaos)])
def test_a_leader_that_is_cut_off_acknowledges_nothing(cluster: Cluster, topic: str, ways: str) -> None:
    """Both ways, the others go on without it. One way, it may still look alive to the controller, and then wait."""
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        others = [node for node in cluster.brokers if node != leader]
        value = b"minority:1:"
        with connect(cluster, leader) as connection:
            cut(cluster, leader, others, ways)
            load.history.sent[topic, 0].add(value)
            assert not acknowledged(connection, topic, value)
        if ways == "both":
            eventually(lambda: described(cluster, topic, 0, *others).leader in others, 60)
            load.goes_on()
        cluster.heal()
        await_in_sync(cluster, load.places)
    log = read_all(cluster.bootstrap, load.places)[topic, 0]
    assert ways != "both" or value not in log.values(), "what only the minority had is gone: nobody was promised it"


def cut(cluster: Cluster, node: int, others: list[int], ways: str) -> None:
    for other in others:
        if ways in ("both", "inward"):
            cluster.cut(other, node)
        if ways in ("both", "outward"):
            cluster.cut(node, other)


def test_a_paused_leader_is_fenced_when_it_wakes_up(cluster: Cluster, topic: str) -> None:
    """A request that it finds in its socket on waking is not acknowledged, and what it wrote of it is cut off."""
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        value = b"sleeper:1:"
        with connect(cluster, leader) as connection:
            cluster.pause(leader)
            connection.send(produce_request(topic, 0, value, ACKS_ALL, 10_000), version=NAMED_PRODUCE)
            load.history.sent[topic, 0].add(value)
            await_leader(cluster, topic, 0, other_than=leader)
            load.goes_on()
            cluster.resume(leader)
            assert not answered_well(connection)
        await_in_sync(cluster, load.places)
    assert value not in read_all(cluster.bootstrap, load.places)[topic, 0].values()


def test_a_paused_follower_leaves_the_in_sync_set_and_returns(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        follower = next(node for node in cluster.brokers if node != leader)
        cluster.pause(follower)
        eventually(lambda: follower not in described(cluster, topic, 0).in_sync, 60)
        load.goes_on()
        cluster.resume(follower)
        await_in_sync(cluster, load.places)
