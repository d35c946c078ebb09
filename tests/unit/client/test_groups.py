"""Groups as an operator sees them, of both protocols, beside real members."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError
from skidway.blocking_client.groups import Groups, NoSuchGroup
from skidway.blocking_client.lag import Lag, measure
from skidway.blocking_client.producer import Producer
from skidway.errors import ErrorCode


@pytest.fixture
def cluster(group_bootstrap: str) -> Iterator[Cluster]:
    with Cluster(group_bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topic(name, partitions=3)
    with Producer(cluster) as producer:
        for number in range(12):
            stamp = time.time_ns() // 1_000_000 - 60_000 * (12 - number)
            producer.send(name, str(number).encode(), partition=number % 3, timestamp_ms=stamp)
    return name


CONSUMER_GROUP_HEARTBEAT = 68


def member(bootstrap: str, topic: str, protocol: str, **more: Any) -> KafkaConsumer:
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{topic}",
            "group.protocol": protocol,
            "client.id": "tester",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert consumer.assignment()
    return consumer


def require_protocol(cluster: Cluster, protocol: str) -> None:
    if protocol == "consumer":
        assert CONSUMER_GROUP_HEARTBEAT in cluster.any_broker().served, "ConsumerGroupHeartbeat is not served"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_life_of_a_group(cluster: Cluster, group_bootstrap: str, topic: str, protocol: str) -> None:
    require_protocol(cluster, protocol)
    groups, group = Groups(cluster), f"g-{topic}"
    consumer = member(group_bootstrap, topic, protocol, **{"group.instance.id": "first"})
    try:
        described = groups.describe(group)
        assert (described.state, described.type, described.protocol) == ("Stable", protocol, "consumer")
        (only,) = described.members
        assert (only.client_id, only.instance_id, only.host) == ("tester", "first", "127.0.0.1")
        assert only.partitions == [(topic, 0), (topic, 1), (topic, 2)]
        assert described.owner((topic, 1)) is only
        assert described.live
        (listed,) = [one for one in groups.all() if one.id == group]
        assert (listed.state, listed.type) == ("Stable", protocol)
        with pytest.raises(BrokerError, match="stop them first") as refused:
            groups.commit(group, {(topic, 0): 1})
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(BrokerError, match="stop them first"):
            groups.delete(group)
    finally:
        # Static members stay in a classic group after close.
        consumer.unsubscribe()
        consumer.close()


def test_offsets_of_an_empty_group(cluster: Cluster, topic: str) -> None:
    groups, group = Groups(cluster), f"g-{topic}"
    assert groups.committed(group) == {}
    with pytest.raises(NoSuchGroup):
        groups.describe(group)
    groups.commit(group, {(topic, 0): 2, (topic, 2): 4}, metadata="by hand")
    found = groups.committed(group)
    assert {place: (entry.offset, entry.metadata) for place, entry in found.items()} == {
        (topic, 0): (2, "by hand"),
        (topic, 2): (4, "by hand"),
    }
    assert list(groups.committed_of(group, [(topic, 1), (topic, 2)])) == [(topic, 2)]
    described = groups.describe(group)
    assert (described.state, described.members, described.live) == ("Empty", [], False)
    assert group in [one.id for one in groups.all(states=["Empty"])]
    assert group not in [one.id for one in groups.all(states=["Stable"])]
    groups.delete(group)
    assert groups.committed(group) == {}
    with pytest.raises(BrokerError, match="no such group"):
        groups.delete(group)


def test_lag_in_messages_and_in_time(cluster: Cluster, topic: str) -> None:
    groups, group = Groups(cluster), f"g-{topic}"
    groups.commit(group, {(topic, 0): 1, (topic, 1): 4})
    lags = {lag.partition: lag for lag in measure(cluster, None, groups.committed(group))}
    now_ms = time.time_ns() // 1_000_000
    assert [lags[0].messages, lags[1].messages] == [3, 0]
    # The first unconsumed of partition 0 is number 3, sent as if nine minutes ago.
    assert lags[0].seconds(now_ms) == pytest.approx(9 * 60, abs=30)
    assert lags[1].seconds(now_ms) == 0.0
    assert 2 not in lags


def test_lag_when_retention_was_faster(cluster: Cluster, topic: str) -> None:
    groups, group = Groups(cluster), f"g-{topic}"
    groups.commit(group, {(topic, 0): 0})
    Admin(cluster).delete_records(topic, {0: 3})
    (lag,) = measure(cluster, None, groups.committed(group))
    assert (lag.messages, lag.deleted) == (1, 3)
    assert lag.seconds(time.time_ns() // 1_000_000) == pytest.approx(3 * 60, abs=30)


def test_lag_of_a_topic_that_is_gone(cluster: Cluster, topic: str) -> None:
    from skidway.blocking_client.groups import Committed

    (lag,) = measure(cluster, None, {(f"{topic}-gone", 0): Committed(5)})
    assert (lag.messages, lag.end, lag.seconds(0)) == (None, None, None)


def test_lag_with_batches_larger_than_a_fetch(cluster: Cluster, topic: str) -> None:
    groups, group = Groups(cluster), f"g-{topic}"
    with Producer(cluster) as producer:
        for partition in range(3):
            producer.send(topic, b"x" * 200_000, partition=partition, timestamp_ms=1_000_000)
            producer.flush()
    groups.commit(group, {(topic, partition): 4 for partition in range(3)})
    lags = measure(cluster, None, groups.committed(group))
    assert [(lag.messages, lag.first_unconsumed_ms) for lag in lags] == [(1, 1_000_000)] * 3


def test_nothing_committed_is_no_lag_at_all() -> None:
    lag = Lag("t", 0, None, None, start=0, end=10)
    assert (lag.messages, lag.seconds(0), lag.deleted) == (None, None, 0)
