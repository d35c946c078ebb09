"""A broker whose process dies is replaced long before its session ends; one that only lost a connection is not."""

import pytest
from broker_world import part
from nodes_together import Cluster, create, made

from skidway.errors import ErrorCode

SESSION_MS = 1_200


def follower_of_the_quorum(cluster: Cluster) -> int:
    return next(number for number in cluster.nodes if number != cluster.controller())


@pytest.mark.parametrize("is_controller", [False, True])
def test_a_leader_that_dies_is_replaced_before_its_session_ends(is_controller: bool) -> None:
    cluster = made(session_timeout_ms=SESSION_MS)
    create(cluster, "t", 9)
    lost = cluster.controller() if is_controller else follower_of_the_quorum(cluster)
    assert lost is not None
    led = [index for index in range(9) if cluster.leader("t", index) == lost]
    assert led
    died_ms = cluster.clock.now_ms
    cluster.kill(lost)
    cluster.until(lambda: all(cluster.leader("t", index) is not None for index in led))
    assert cluster.clock.now_ms - died_ms < SESSION_MS * 2 // 3


def test_nobody_is_sent_to_a_leader_that_just_died() -> None:
    cluster = made(session_timeout_ms=SESSION_MS)
    create(cluster, "t", 9)
    lost = follower_of_the_quorum(cluster)
    other = next(number for number in cluster.nodes if number != lost)
    led = [index for index in range(9) if cluster.leader("t", index) == lost]
    cluster.pass_time(SESSION_MS)  # its followers' fetches are answered, if only by nothing new
    cluster.kill(lost)
    cluster.pass_time(1)
    for index, (error, leader) in leaders_told_by(cluster, other).items():
        assert (error == ErrorCode.LEADER_NOT_AVAILABLE) == (leader == -1) == (index in led)
    cluster.until(lambda: all(cluster.leader("t", index) is not None for index in led))
    assert {leader for _, leader in leaders_told_by(cluster, other).values()} == set(cluster.nodes) - {lost}


def leaders_told_by(cluster: Cluster, number: int) -> dict[int, tuple[int, int]]:
    reply = cluster.client(number).call("Metadata", topics=[part("Metadata", "MetadataRequestTopic", name="t")])
    return {each.partition_index: (each.error_code, each.leader_id) for each in reply.topics[0].partitions}


def test_a_broker_that_opens_another_connection_stays() -> None:
    cluster = made(session_timeout_ms=SESSION_MS)
    controller, other = cluster.controller(), follower_of_the_quorum(cluster)
    assert controller is not None
    epoch = cluster.nodes[controller].image.brokers[other].epoch
    for _ in range(5):
        for wire in [wire for wire in cluster.wires if wire.ends == (other, controller)]:
            wire.close()
        cluster.pass_time(SESSION_MS // 2)
        assert cluster.nodes[controller].image.brokers[other].active
    assert cluster.nodes[controller].image.brokers[other].epoch == epoch
