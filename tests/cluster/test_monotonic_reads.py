"""Readers that move between leader and followers never see offsets go back, skip or change their values."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from cluster_history import QUICK, History
from confluent_kafka import Consumer, KafkaError, TopicPartition
from loaded import Load, loaded
from replica_files import await_in_sync

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError
from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.records.record import read_records
from skidway.testing import Cluster
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from waiting import eventually

RACKS = {1: "east", 2: "west", 3: "north"}
NAMED_FETCH = 12
PATIENCE_S = 60.0
REPLY_MS = 500
SEED = int(os.environ.get("SKIDWAY_CHAOS_SEED", "1"))
ROUNDS = 25
LATER = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE)
"""A follower that lags says the first; one that knows nothing of the partition yet the others."""


class Reader:
    """Reads one partition on a thread of its own and says what is wrong."""

    def __init__(self, cluster: Cluster, topic: str, history: History) -> None:
        self.cluster = cluster
        self.topic = topic
        self.history = history
        self.position = 0
        self.sources: Counter[int] = Counter()
        """How often it read from which node."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def read(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def take(self, offset: int, value: bytes) -> None:
        if offset != self.position:
            self.history.wrong.append(f"{type(self).__name__} got offset {offset}, expected {self.position}")
        self.history.see((self.topic, 0), offset, value)
        self.position = offset + 1

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.read()
            except Exception as error:
                self.history.wrong.append(f"{type(self).__name__}: {error!r}")
                return


class Wanderer(Reader):
    """Asks another node each time, whoever leads: the hardest that a client can do."""

    def __init__(self, cluster: Cluster, topic: str, history: History, seed: int) -> None:
        self.dice = Random(seed)
        self._connections: dict[int, Connection] = {}
        super().__init__(cluster, topic, history)

    def close(self) -> None:
        super().close()
        for connection in self._connections.values():
            connection.close()

    def read(self) -> None:
        node = self.dice.choice(sorted(RACKS))
        partition = FetchPartition(0, fetch_offset=self.position, partition_max_bytes=self.dice.choice((100, 5_000)))
        request = FetchRequest(max_wait_ms=20, min_bytes=1, topics=[FetchTopic(self.topic, partitions=[partition])])
        try:
            connection = self._connection(node)
            connection.send(request, version=NAMED_FETCH)
            (answer,) = connection.receive(FetchResponse).responses[0].partitions
        except ClientError:
            if node in self._connections:
                self._connections.pop(node).close()
            return
        if answer.error_code not in (ErrorCode.NONE, *LATER):
            return
        data = bytes(answer.records or b"")  # type: ignore[arg-type]
        for start, header in iter_headers(data):
            if start + header.size > len(data):
                break
            for record in read_records(data[start : start + header.size], decompressed_bytes_max=1 << 20):
                if record.offset >= self.position:
                    self.take(record.offset, record.value or b"")
                    self.sources[node] += 1

    def _connection(self, node: int) -> Connection:
        if node not in self._connections:
            broker = self.cluster[node]
            address = Address(broker.host, broker.port)
            self._connections[node] = Connection(address, connect_timeout_ms=REPLY_MS, reply_timeout_ms=REPLY_MS)
        return self._connections[node]


class InRack(Reader):
    """librdkafka with `client.rack`: the leader sends it to a replica there, and it goes back when that one is gone."""

    def __init__(self, cluster: Cluster, topic: str, history: History, rack: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": rack, "client.rack": rack, **QUICK}
        settings |= {"auto.offset.reset": "error", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self.consumer = Consumer({**settings, "statistics.interval.ms": 200, "stats_cb": self._on_statistics})
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        super().__init__(cluster, topic, history)

    def read(self) -> None:
        for message in self.consumer.consume(200, 0.05):
            error = message.error()
            if error is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                self.take(offset, value)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.history.wrong.append(f"a reader in a rack was told to begin elsewhere: {error.str()}")

    def _on_statistics(self, text: str) -> None:
        partitions: dict[str, Any] = json.loads(text)["topics"].get(self.topic, {}).get("partitions", {})
        self.sources[partitions.get("0", {}).get("broker", -1)] += 1


@contextmanager
def readers(cluster: Cluster, topic: str, history: History, seed: int) -> Iterator[list[Reader]]:
    started: list[Reader] = [InRack(cluster, topic, history, rack) for rack in RACKS.values()]
    started += [Wanderer(cluster, topic, history, seed + number) for number in range(2)]
    try:
        yield started
    finally:
        for reader in started:
            reader.close()


def all_read_on(load: Load, started: list[Reader]) -> None:
    load.goes_on()
    end = max(reader.position for reader in started)
    assert eventually(lambda: load.history.wrong or all(reader.position >= end for reader in started), PATIENCE_S)
    assert load.history.wrong == []


def test_readers_that_move_between_replicas_read_everything_once_and_in_order(topic: str) -> None:
    settings = {node: {"rack": rack} for node, rack in RACKS.items()}
    with Cluster(3, node_settings=settings) as cluster, loaded(cluster, topic, partitions=1) as load:
        with readers(cluster, topic, load.history, SEED) as started:
            all_read_on(load, started)
            leader = cluster.leader_of(topic)
            cluster.kill(leader)
            all_read_on(load, started)
            cluster.start(leader)
            await_in_sync(cluster, load.places)
            follower = cluster.followers_of(topic)[0]
            cluster.pause(follower)
            all_read_on(load, started)
            cluster.resume(follower)
            all_read_on(load, started)
        assert set(started[-1].sources) == set(RACKS), "from every replica"


@pytest.mark.chaos
def test_readers_that_move_for_many_rounds(topic: str) -> None:
    dice = Random(SEED)
    settings = {node: {"rack": rack} for node, rack in RACKS.items()}
    with (
        Cluster(3, node_settings=settings) as cluster,
        loaded(cluster, topic, 1, flush=dice.choice(("os", "sync"))) as load,
    ):
        with readers(cluster, topic, load.history, SEED) as started:
            for _ in range(ROUNDS):
                node = dice.choice(sorted(RACKS))
                fault = dice.choice(("kill", "stop", "pause", "cut"))
                if fault == "cut":
                    cluster.partition({node})
                    load.goes_on()
                    cluster.heal()
                else:
                    getattr(cluster, fault)(node)
                    load.goes_on()
                    cluster.resume(node) if fault == "pause" else cluster.start(node)
                await_in_sync(cluster, load.places)
                all_read_on(load, started)
        count = sum(reader.position for reader in started)
        moves = {type(reader).__name__: dict(reader.sources) for reader in started}
        print(f"\n{ROUNDS} rounds, {count} reads by {len(started)} readers, none went back; from nodes {moves}")
