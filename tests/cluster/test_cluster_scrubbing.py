"""A byte goes wrong on a disk and nobody reads it: brokers find it themselves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_calls import SMALL, await_leader, described
from loaded import loaded
from replica_files import await_in_sync, batches_of

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.consumer import Consumer
from skidway.blocking_client.producer import Producer
from skidway.records.batch import HEADER_BYTES, crc_matches, iter_headers
from skidway.testing import Broker, Cluster
from waiting import eventually

PATIENCE_S = 60.0
OFTEN: dict[str, Any] = {"scrub_interval_ms": 1_000}
VALUE = b"v" * 1_000
MESSAGES = 900


@pytest.fixture(scope="module")
def watchful() -> Iterator[Cluster]:
    with Cluster(3, **OFTEN) as cluster:
        yield cluster


def segments(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def flip_a_byte(path: Path) -> None:
    """Of a record in the middle, under a broker that has the file open."""
    positions = [position for position, _ in iter_headers(path.read_bytes())]
    at = positions[len(positions) // 2] + HEADER_BYTES
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x55]))


@pytest.mark.parametrize("leads", [True, False])
def test_a_flipped_byte_that_nobody_reads_is_found_and_fetched_anew(watchful: Cluster, topic: str, leads: bool) -> None:
    cluster = watchful
    with loaded(cluster, topic, partitions=1, rate=500.0) as load:
        leader = await_leader(cluster, topic, 0)
        node = leader if leads else next(n for n in described(cluster, topic, 0).replicas if n != leader)
        # A full one and the next: what is closed.
        eventually(lambda: len(segments(cluster[node], topic)) > 1, PATIENCE_S)
        flip_a_byte(segments(cluster[node], topic)[0])
        told = f"{topic}-0: damaged, will be fetched again"
        eventually(lambda: told in cluster[node].output, PATIENCE_S)
        if leads:
            await_leader(cluster, topic, 0, other_than=node)
        await_in_sync(cluster, load.places)
    # Everything acknowledged was read with its value, and all copies are equal byte by byte.
    folder = cluster[node].data_dir / f"{topic}-0"
    assert all(crc_matches(batch) for batch in batches_of(folder, 1 << 62))
    assert [n for n in (1, 2, 3) if told in cluster[n].output] == [node]


def test_a_single_broker_tells_what_is_damaged_and_drops_nothing(topic: str) -> None:
    with Broker(**OFTEN) as broker, Client(broker.bootstrap) as client:
        Admin(client).create_topic(topic, partitions=1, configs=SMALL)
        send(client, topic, MESSAGES)
        eventually(lambda: "stored batches checked" in broker.output, PATIENCE_S)
        first, second, *_ = segments(broker, topic)
        flip_a_byte(first)
        before = {path: path.read_bytes() for path in segments(broker, topic)}
        eventually(lambda: f"{topic}-0/{first.name} has a damaged batch" in broker.output, PATIENCE_S)
        assert "Nothing was dropped" in broker.output
        assert second.name not in broker.output
        assert {path: path.read_bytes() for path in segments(broker, topic)} == before
        send(client, topic, 1)
        behind = Consumer(client, topic, {0: int(second.stem)})
        assert len(list(behind.read())) == MESSAGES + 1 - int(second.stem), "the rest is served"


def send(client: Client, topic: str, messages: int) -> None:
    producer = Producer(client, batch_bytes=10_000)
    for _ in range(messages):
        producer.send(topic, VALUE)
    producer.flush()
