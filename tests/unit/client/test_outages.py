"""The client through restarts and crashes of the broker: nothing acknowledged is lost, nothing is there twice."""

import threading
import time
from typing import Any

import pytest

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumer
from skidway.blocking_client.errors import ConnectionLost
from skidway.blocking_client.producer import Producer
from skidway.testing import Broker


def values(broker: Broker, topic: str) -> list[bytes | None]:
    with Cluster(broker.bootstrap) as cluster:
        return [record.value for record in Consumer(cluster, topic, {0: 0}).read()]


def test_a_producer_and_a_follower_live_through_a_crash(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as writing, Cluster(fresh_broker.bootstrap) as reading:
        Admin(writing).create_topic("t", partitions=1)
        producer = Producer(writing)
        following = Consumer(reading, "t", {0: 0}).read(follow=True)
        for number in range(4):
            assert producer.send_now("t", b"%d" % number) == (0, number)
            assert next(following).value == b"%d" % number
            fresh_broker.restart(kill=number % 2 == 0)
    assert values(fresh_broker, "t") == [b"0", b"1", b"2", b"3"]


def test_a_flush_waits_for_a_broker_that_comes_back(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", partitions=1)
        producer = Producer(cluster)
        producer.send_now("t", b"before")
        fresh_broker.kill()
        comeback = threading.Timer(0.5, fresh_broker.start)
        began = time.monotonic()
        comeback.start()
        producer.send("t", b"during")
        producer.flush()
        assert time.monotonic() - began >= 0.5
        comeback.join()
    assert values(fresh_broker, "t") == [b"before", b"during"]


def test_a_reply_that_got_lost_does_not_double_the_batch(fresh_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", partitions=1)
        producer = Producer(cluster)
        producer.send_now("t", b"first")
        connection = cluster.leader("t", 0)
        receive = connection.receive

        def lose(*args: Any, **kwargs: Any) -> None:
            receive(*args, **kwargs)
            connection.close()
            raise ConnectionLost("the answer got lost on its way")

        monkeypatch.setattr(connection, "receive", lose)
        assert producer.send_now("t", b"second") == (0, 1)
        assert producer.send_now("t", b"third") == (0, 2)
    assert values(fresh_broker, "t") == [b"first", b"second", b"third"]
