"""kill -9 under load, again and again: what was acknowledged is there, by value, order and offset."""

import contextlib
import os
import signal
import threading
from random import Random

import pytest
from real_load import IdempotentProducer, Ledger, RawProducer, await_true, connect, produce_once

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.testing import Broker, BrokerFailed
from skidway.wire.schema.metadata import MetadataRequest, MetadataResponse

ROUNDS = 3
CHAOS_ROUNDS = int(os.environ.get("SKIDWAY_CHAOS_ROUNDS", "60"))
ACKS_PER_ROUND = 200
PARTITIONS = 2
SEGMENT_BYTES = 32 * 1024
SMALL = {"internal.segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1024", "file.delete.delay.ms": "0"}
RAW = [("synced", -1), ("synced", 1), ("cached", -1), ("cached", 1), ("shrinking", -1)]


class Churn:
    """Topics that come and go, and a topic whose records are deleted, while the others are loaded."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.asked_to_delete: set[str] = set()
        self.number = 0

    def step(self, admin: Admin) -> None:
        self.number += 1
        name = f"churn-{self.number}"
        admin.create_topic(name, partitions=1, configs=SMALL)
        self.created.add(name)
        if self.number % 2:
            self.asked_to_delete.add(name)
            admin.delete_topic(name)
            self.deleted.add(name)
        place = ("shrinking", 0)
        told = self.ledger.snapshot().get(place)
        if told:
            offset = max(told) // 2
            self.ledger.deleted_to[place] = max(self.ledger.deleted_to[place], offset)
            admin.delete_records("shrinking", {0: offset})

    def verify(self, admin: Admin) -> None:
        there = {topic.name for topic in admin.topics()}
        assert self.created - self.asked_to_delete <= there
        assert not self.deleted & there


def one_round(broker: Broker, ledger: Ledger, churn: Churn, number: int, random: Random) -> None:
    """Load, kill at some moment, start again, compare."""
    producers = [
        RawProducer(broker, ledger, f"r{number}-{topic}-{acks}-{partition}", topic, partition, acks)
        for topic, acks in RAW
        for partition in range(PARTITIONS if topic != "shrinking" else 1)
    ]
    for producer in producers:
        producer.start()
    wanted = ledger.count + ACKS_PER_ROUND + random.randrange(ACKS_PER_ROUND)
    churn_until = ledger.count + ACKS_PER_ROUND
    with Cluster(broker.bootstrap) as cluster:
        admin = Admin(cluster)
        while ledger.count < churn_until and not ledger.errors:
            churn.step(admin)
    await_true(lambda: ledger.count >= wanted or ledger.errors, "acknowledgements")
    broker.kill()
    for producer in producers:
        producer.join()
        assert producer.failure is None, producer.failure
    broker.start()
    ledger.verify(broker)
    with Cluster(broker.bootstrap) as cluster:
        churn.verify(Admin(cluster))


def kill_in_a_loop(rounds: int, seed: int) -> None:
    random = Random(seed)
    ledger = Ledger()
    churn = Churn(ledger)
    with Broker(checkpoint_ms=300, retention_check_ms=300) as broker:
        with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            for topic, flush in (("synced", "sync"), ("cached", "os"), ("shrinking", "sync"), ("idempotent", "sync")):
                admin.create_topic(topic, partitions=PARTITIONS, configs={**SMALL, "flush": flush})
        steady = IdempotentProducer(broker, ledger, "steady", "idempotent", PARTITIONS)
        for number in range(rounds):
            one_round(broker, ledger, churn, number, random)
        steady.finish()
        sent = sum(len(told) for (topic, _), told in ledger.snapshot().items() if topic == "idempotent")
        assert sent == steady.sent, "each message is acknowledged once"
        ledger.verify(broker)
        segments = list(broker.data_dir.glob("synced-0/*.log"))
        assert len(segments) > 1, "the load was too small to roll a segment"
        broker.restart()
        ledger.verify(broker)


def test_kill_9_in_a_loop_loses_nothing_acknowledged() -> None:
    kill_in_a_loop(ROUNDS, seed=1)


@pytest.mark.chaos
def test_kill_9_in_a_long_loop_loses_nothing_acknowledged() -> None:
    kill_in_a_loop(CHAOS_ROUNDS, seed=2)


def test_sigterm_under_load_is_a_clean_stop_without_loss() -> None:
    ledger = Ledger()
    with Broker(checkpoint_ms=60_000) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for topic, flush in (("synced", "sync"), ("cached", "os"), ("shrinking", "sync"), ("idempotent", "sync")):
                Admin(cluster).create_topic(topic, partitions=PARTITIONS, configs={**SMALL, "flush": flush})
        steady = IdempotentProducer(broker, ledger, "steady", "idempotent", PARTITIONS)
        marker = broker.data_dir / ".kafka_cleanshutdown"
        for number in range(2):
            producers = [
                RawProducer(broker, ledger, f"t{number}-{topic}-{acks}-{partition}", topic, partition, acks)
                for topic, acks in RAW
                for partition in range(PARTITIONS)
            ]
            for producer in producers:
                producer.start()
            wanted = ledger.count + ACKS_PER_ROUND
            await_true(lambda: ledger.count >= wanted or ledger.errors, "acknowledgements")  # noqa: B023
            epochs = leader_epochs(broker)
            assert broker.stop() == 0, broker.output[-2000:]
            for producer in producers:
                producer.join()
                assert producer.failure is None, producer.failure
            assert marker.exists()
            broker.start()
            assert not marker.exists(), "from here on a crash is a crash"
            assert leader_epochs(broker) == epochs, "after a clean stop nothing is recovered"
            ledger.verify(broker)
        steady.finish()
        ledger.verify(broker)
        broker.restart(kill=True)
        assert leader_epochs(broker) != epochs, "after a crash leaders begin anew"
        ledger.verify(broker)


def leader_epochs(broker: Broker) -> dict[tuple[str, int], int]:
    with connect(broker) as connection:
        reply = connection.call(MetadataRequest(None), MetadataResponse)
    return {
        (topic.name or "", partition.partition_index): partition.leader_epoch
        for topic in reply.topics
        for partition in topic.partitions
    }


def test_a_broker_killed_while_it_recovers_recovers_the_next_time() -> None:
    """Killed as soon as it runs, over and over: recovery may be cut anywhere and starts again."""
    ledger = Ledger()
    with Broker() as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("story", partitions=1, configs=SMALL)
        with connect(broker) as connection:
            for number in range(200):
                values = [b"only:%d:%s" % (number, bytes(700))]
                code, offset = produce_once(connection, "story", 0, values, -1)
                assert code == 0
                ledger.acknowledge(("story", 0), offset, values)
        for number in range(10):
            broker.kill()
            killer = Random(number)
            interrupted_start(broker, killer.uniform(0.05, 0.3))
        broker.start()
        assert ledger.verify(broker) == 200


def interrupted_start(broker: Broker, after_s: float) -> None:
    """Start a broker and kill it at a moment that lies before or after its readiness, whichever it is."""
    timer = threading.Timer(after_s, kill_process, [broker])
    timer.start()
    with contextlib.suppress(BrokerFailed):
        broker.start()
    timer.join()


def kill_process(broker: Broker) -> None:
    with contextlib.suppress(BrokerFailed, ProcessLookupError):
        os.kill(broker.pid, signal.SIGKILL)
