"""Rolling restarts, reassignments, elections and new topics under load: clients see no error and nothing is lost."""

import time
from collections.abc import Callable
from typing import Any

from cluster_calls import create_topic, described, elect_preferred_leaders, reassign
from cluster_history import QUICK
from confluent_kafka import Consumer, KafkaException, TopicPartition
from loaded import loaded
from replica_files import await_in_sync

from skidway.blocking_client.cluster import Cluster as Client
from skidway.testing import Cluster
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from waiting import comes_true, eventually


def test_a_rolling_restart_is_not_noticed(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic) as load:
        began = time.monotonic()
        for node in cluster.brokers:
            cluster.stop(node)
            cluster.start(node)
            await_in_sync(cluster, load.places)
        load.goes_on()
        print(f"rolling restart: longest gap {load.history.longest_gap_s(began):.2f} s")


def test_replicas_move_and_leaders_change_under_load(cluster: Cluster, topic: str) -> None:
    with loaded(cluster, topic) as load:
        first, second, third = cluster.brokers
        reassign(cluster, topic, {0: [first, second], 1: [second, third], 2: [third, first]})
        load.goes_on()
        eventually(lambda: sorted(described(cluster, topic, 0).replicas) == sorted([first, second]))
        reassign(cluster, topic, {0: [second, third, first], 1: [third, first, second], 2: [first, second, third]})
        await_in_sync(cluster, load.places)
        elect_preferred_leaders(cluster)
        eventually(lambda: described(cluster, topic, 0).leader == second)
        for number in range(3):
            create_topic(cluster, f"{topic}-{number}", partitions=4)
            load.goes_on(30)


def coordinator_of(cluster: Cluster, group: str) -> int:
    found = [-1]

    def known() -> bool:
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        with Client(cluster.bootstrap) as client:
            (answer,) = client.any_broker().call(request, FindCoordinatorResponse).coordinators
        found[0] = answer.node_id
        return not answer.error_code

    eventually(known, 60)
    return found[0]


def test_committed_offsets_survive_their_coordinators_death(cluster: Cluster, topic: str) -> None:
    group = f"group-{topic}"
    settings = {**QUICK, "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    with loaded(cluster, topic) as load:
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000})
        consumer.subscribe([topic])
        committed: dict[int, int] = {}
        for _ in range(2):
            read_and_commit(consumer, committed, commits=5)
            coordinator = coordinator_of(cluster, group)
            cluster.kill(coordinator)
            eventually(lambda: coordinator_of(cluster, group) != coordinator, 60)  # noqa: B023
            places = [TopicPartition(topic, index) for index in range(3)]
            found = {place.partition: place.offset for place in patiently(lambda: consumer.committed(places, 10))}  # noqa: B023
            assert {index: found[index] for index in committed} == committed
            read_and_commit(consumer, committed, commits=2)
            cluster.start(coordinator)
            await_in_sync(cluster, load.places)
        consumer.close()


def read_and_commit(consumer: Consumer, committed: dict[int, int], commits: int) -> None:
    done = [0]

    def step() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            try:
                (place,) = consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                return False  # the coordinator is moving, or the group is; the next one will do
            if place.error is None:
                committed[place.partition] = place.offset
                done[0] += 1
        return done[0] >= commits

    assert comes_true(step, 60), f"{done[0]} of {commits} commits"


def patiently(ask: Callable[[], Any]) -> Any:
    found = []

    def answered() -> bool:
        try:
            found.append(ask())
        except KafkaException:
            return False
        return True

    eventually(answered, 60)
    return found[-1]
