"""Replicas move: first more, then others, and never less than is safe."""

import pytest
from controller_world import Cluster, shape

from skidway.errors import ErrorCode
from skidway.limits import Limits
from skidway.metadata.controller import Controller
from skidway.metadata.operations import AlterReassignments, ListReassignments, PartitionReassigned, Reassignment


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4, 5)
    cluster.create("orders", 1, 2, 3)
    return cluster


def move(cluster: Cluster, replicas: list[int] | None, *, resize: bool = True) -> PartitionReassigned:
    [(_, [result])] = cluster.decide(AlterReassignments([("orders", [(0, replicas)])], resize))
    return result


def replicas(cluster: Cluster) -> tuple[list[int], list[int], list[int]]:
    partition = cluster.partition("orders")
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def test_new_replicas_come_before_old_ones_go(cluster: Cluster) -> None:
    assert move(cluster, [4, 5, 1]).error == ErrorCode.NONE
    assert replicas(cluster) == ([4, 5, 1, 2, 3], [4, 5], [2, 3])
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2, 3]"
    assert cluster.partition("orders").leader_epoch == 0
    assert cluster.decide(ListReassignments()) == [("orders", [Reassignment(0, [4, 5, 1, 2, 3], [4, 5], [2, 3])])]
    cluster.alter("orders", 1, 2, 3, 4)
    assert replicas(cluster) == ([4, 5, 1, 2, 3], [4, 5], [2, 3]), "5 is not in sync yet"
    done = cluster.alter("orders", 1, 2, 3, 4, 5)
    assert (done.error, done.leader, done.isr) == (ErrorCode.NONE, 1, [4, 5, 1])
    assert replicas(cluster) == ([4, 5, 1], [], [])
    assert cluster.partition("orders").leader_epoch == 1, "2 and 3 are told that they are replicas no more"
    assert cluster.decide(ListReassignments()) == []
    assert len(cluster.partition("orders").directories) == 3


def test_a_leader_that_is_moved_away_learns_that_another_was_elected(cluster: Cluster) -> None:
    move(cluster, [4, 5])
    assert cluster.alter("orders", 1, 2, 3, 4, 5).error == ErrorCode.NEW_LEADER_ELECTED
    assert shape(cluster.partition("orders")) == "leader 4, in sync [4, 5]"


def test_a_target_that_left_the_in_sync_set_keeps_a_reassignment_open(cluster: Cluster) -> None:
    move(cluster, [1, 4])
    cluster.alter("orders", 1, 2, 3)
    cluster.silence(4)
    cluster.heartbeat(4)
    assert replicas(cluster) == ([1, 4, 2, 3], [4], [2, 3])
    cluster.alter("orders", 1, 2, 3, 4)
    assert replicas(cluster) == ([1, 4], [], [])


def test_another_order_or_fewer_replicas_need_nobody_to_catch_up(cluster: Cluster) -> None:
    move(cluster, [3, 2, 1])
    assert replicas(cluster) == ([3, 2, 1], [], [])
    assert cluster.partition("orders").leader == 1
    move(cluster, [3])
    assert replicas(cluster) == ([3], [], [])
    assert shape(cluster.partition("orders")) == "leader 3, in sync [3]"


def test_cancelled_it_is_as_it_was(cluster: Cluster) -> None:
    move(cluster, [4, 5, 1])
    cluster.alter("orders", 1, 2, 3, 4)
    assert move(cluster, None).error == ErrorCode.NONE
    assert replicas(cluster) == ([1, 2, 3], [], [])
    assert shape(cluster.partition("orders")) == "leader 1, in sync [1, 2, 3]"
    assert move(cluster, None).error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_second_target_replaces_the_first(cluster: Cluster) -> None:
    move(cluster, [4, 1])
    move(cluster, [5, 1])
    assert replicas(cluster) == ([5, 1, 2, 3], [5], [2, 3])
    move(cluster, [1, 2, 3])
    assert replicas(cluster) == ([1, 2, 3], [], [])


def test_the_last_replica_that_has_everything_stays(cluster: Cluster) -> None:
    move(cluster, [4, 5, 1])
    cluster.alter("orders", 1, 4)
    cluster.silence(1, 2, 3)
    assert shape(cluster.partition("orders")) == "leader 4, in sync [4]"
    for target in (None, [5, 1]):
        assert move(cluster, target).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert replicas(cluster) == ([4, 5, 1, 2, 3], [4, 5], [2, 3])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 4], ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_targets_that_make_no_sense_are_refused(
    cluster: Cluster, target: list[int] | None, expected: ErrorCode
) -> None:
    assert move(cluster, target, resize=False).error == expected
    assert cluster.last == []


def test_partitions_are_answered_one_by_one(cluster: Cluster) -> None:
    order = AlterReassignments([("orders", [(0, [4]), (0, [5]), (3, [4])]), ("nowhere", [(0, [1])])])
    codes = [[each.error.name for each in results] for _, results in cluster.decide(order)]
    assert codes == [["NONE", "INVALID_REQUEST", "UNKNOWN_TOPIC_OR_PARTITION"], ["UNKNOWN_TOPIC_OR_PARTITION"]]
    asked = ListReassignments([("orders", [0, 1, -1]), ("nowhere", [0])])
    assert [name for name, _ in cluster.decide(asked)] == ["orders"]


def test_a_broker_that_holds_as_much_as_it_may_gets_no_more() -> None:
    cluster = Cluster()
    cluster.controller = Controller(cluster.random, Limits(partitions_max=1), image=cluster.controller.image)
    cluster.start(1, 2)
    cluster.create("full", 2)
    cluster.create("orders", 1)
    assert move(cluster, [2]).error == ErrorCode.POLICY_VIOLATION
