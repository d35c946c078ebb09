"""kill -9 under load: of a leader, a follower, the controller, all at once; nothing acknowledged is lost."""

import time

import pytest
from cluster_calls import await_leader, described
from loaded import loaded
from replica_files import await_in_sync

from skidway.testing import Cluster


def test_one_node_down_costs_no_availability(cluster: Cluster, topic: str) -> None:
    """Each in its turn: with two of three replicas every message is still acknowledged."""
    with loaded(cluster, topic) as load:
        for node in cluster.brokers:
            cluster.kill(node)
            load.goes_on()
            cluster.start(node)
            await_in_sync(cluster, load.places)


def test_a_leader_that_is_killed_is_replaced(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic, partitions=1) as load:
        leader = cluster.leader_of(topic, 0)
        cluster.kill(leader)
        began = time.monotonic()
        assert await_leader(cluster, topic, 0, other_than=leader) in cluster.brokers
        load.goes_on()
        print(f"leader killed: longest gap {load.history.longest_gap_s(began):.2f} s")
        cluster.start(leader)
        await_in_sync(cluster, load.places)


@pytest.mark.chaos
def test_a_follower_that_is_killed_catches_up(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic, partitions=1, rate=500) as load:
        leader = cluster.leader_of(topic, 0)
        follower = next(node for node in cluster.brokers if node != leader)
        cluster.kill(follower)
        load.goes_on(1_000)
        assert follower not in described(cluster, topic, 0).in_sync
        cluster.start(follower)
        await_in_sync(cluster, load.places)


def test_the_controller_is_killed_and_topics_are_created_meanwhile(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic) as load:
        controller = cluster.controller()
        cluster.kill(controller)
        with loaded(cluster, f"{topic}-meanwhile") as another:
            assert cluster.controller() not in (controller, -1)
            load.goes_on()
            cluster.start(controller)
            await_in_sync(cluster, load.places + another.places)


def test_all_nodes_are_killed_at_once(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic) as load:
        cluster.kill(*cluster.brokers)
        cluster.start(*cluster.brokers, wait=False)
        load.goes_on()
        await_in_sync(cluster, load.places)
