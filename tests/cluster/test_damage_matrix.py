"""All nodes are killed, and one copy is damaged while they are down. Whatever the damage and whoever starts first: what
was acknowledged is there where a sound copy is, and nobody gets a shorter log where there is none.

Two cases run in `make test`, a few more in `make test-all`, the whole matrix in `make chaos`.
"""

import shutil
import socket
import time
from pathlib import Path

import pytest
from cluster_calls import SMALL, described, produce_request
from damage_kinds import BY_NAME, KINDS, ORDERS, TOPIC, Kind, has_saved, partition_of, segments
from replica_files import assert_replicas_equal, await_in_sync

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError
from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.records.record import read_records
from skidway.testing import Broker, Cluster
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skidway.wire.schema.produce import ProduceResponse
from waiting import eventually

MESSAGES = 60
PADDING = b"." * 900
VALUES = [b"%d:%s" % (number, PADDING) for number in range(MESSAGES)]
SETTINGS = {**SMALL, "internal.segment.bytes": "12000"}
CHECKPOINT_MS = 300
PATIENCE_S = 90.0
FEW = [
    ("bit above the checkpoint", "damaged first", "sync"),
    ("directory removed", "damaged with one other", "sync"),
    ("bit in partition.metadata", "together", "os"),
]


def connected(broker: Broker) -> Connection:
    return Connection(Address(broker.host, broker.port))


def write(connection: Connection, first: int, end: int) -> None:
    """Acknowledged by all in sync, one by one."""
    for number in range(first, end):
        connection.send(produce_request(TOPIC, 0, VALUES[number], -1, 20_000), version=12)
        (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
        assert (ErrorCode(answer.error_code), answer.base_offset) == (ErrorCode.NONE, number)


def read_all(broker: Broker) -> tuple[list[bytes], ErrorCode]:
    """The values from offset 0 on, and what ended the reading: NONE at the end of the log."""
    values: list[bytes] = []
    with connected(broker) as connection:
        while True:
            asked = FetchPartition(0, fetch_offset=len(values), partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(TOPIC, partitions=[asked])])
            connection.send(request, version=12)
            (answer,) = connection.receive(FetchResponse).responses[0].partitions
            data = bytes(answer.records or b"")  # type: ignore[arg-type]
            if answer.error_code or not data:
                return values, ErrorCode(answer.error_code)
            for position, header in iter_headers(data):
                records = read_records(data[position : position + header.size], decompressed_bytes_max=1 << 20)
                values += [record.value or b"" for record in records if record.offset >= len(values)]


def load(leader: Broker, directories: list[Path], old: Path) -> None:
    """Write everything, keep a copy of half of it, and wait until every checkpoint knows of all."""
    with connected(leader) as connection:
        write(connection, 0, MESSAGES // 2)
        eventually(lambda: has_saved(directories[0], MESSAGES // 2))
        shutil.copytree(partition_of(directories[0]), old)
        write(connection, MESSAGES // 2, MESSAGES)
    eventually(lambda: all(has_saved(directory, MESSAGES) for directory in directories))
    assert len(segments(directories[0])) > 3


# --- one node ---


def damage_the_only_copy(kind: Kind, flush: str, old: Path) -> None:
    with Broker(checkpoint_ms=CHECKPOINT_MS) as broker:
        with Client(broker.bootstrap) as client:
            Admin(client).create_topic(TOPIC, partitions=1, configs={**SETTINGS, "flush": flush})
        load(broker, [broker.data_dir], old)
        broker.kill()
        kind.do(broker.data_dir, old)
        printed = len(broker.output)
        broker.start()
        values, error = read_all(broker)
        if kind.hides_nothing:
            assert (values, error) == (VALUES, ErrorCode.NONE)
            return
        assert (values, error) == ([], ErrorCode.KAFKA_STORAGE_ERROR), "nobody gets less than there was"
        with connected(broker) as connection:
            connection.send(produce_request(TOPIC, 0, b"x", -1, 20_000), version=12)
            (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert f"quarantined: the broker neither serves nor truncates it: {TOPIC}-0" in broker.output[printed:]
        broker.stop()
        (partition_of(broker.data_dir) / "accept-loss").touch()
        broker.start()
        assert f"{TOPIC}-0: an operator accepted the loss" in broker.output[printed:]
        values, error = read_all(broker)
        assert error in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert values == VALUES[: len(values)]
        with connected(broker) as connection:
            connection.send(produce_request(TOPIC, 0, b"x", -1, 20_000), version=12)
            (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
            assert answer.error_code == ErrorCode.NONE, "it serves on"


@pytest.mark.parametrize("name", ["last bit above the checkpoint", "directory removed", "partition.metadata removed"])
def test_the_only_copy_is_never_served_short_until_an_operator_says_so(name: str, tmp_path: Path) -> None:
    damage_the_only_copy(BY_NAME[name], "sync", tmp_path / "old")


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_every_damage_to_the_only_copy(tmp_path: Path) -> None:
    # A single node whose whole directory is wiped knows of nothing: that is a new broker.
    cases = [(kind, flush) for kind in KINDS if not kind.wipes for flush in ("sync", "os")]
    for number, (kind, flush) in enumerate(cases, 1):
        print(f"\r{number}/{len(cases)} {kind.name}, one node, flush={flush} ", end="", flush=True)
        damage_the_only_copy(kind, flush, tmp_path / f"old-{number}")
        print("never short", flush=True)


# --- three nodes ---


def damage_one_of_three(kind: Kind, order: str, flush: str, old: Path) -> str:
    """Returns what the damaged node printed since."""
    with Cluster(3, checkpoint_ms=CHECKPOINT_MS, network=False) as cluster:
        configs = {**SETTINGS, "min.insync.replicas": "2", "flush": flush}
        with Client(cluster.bootstrap) as client:
            Admin(client).create_topic(TOPIC, partitions=1, replication=3, configs=configs)
        victim, *others = described(cluster, TOPIC, 0).replicas
        load(cluster[cluster.leader_of(TOPIC)], [cluster[node].data_dir for node in (victim, *others)], old)
        cluster.kill(*cluster.brokers)
        kind.do(cluster[victim].data_dir, old)
        printed = len(cluster[victim].output)
        start_in_order(cluster, order, victim, others, votes=not kind.wipes)
        await_in_sync(cluster, [(TOPIC, 0)])
        values, error = read_all(cluster[cluster.leader_of(TOPIC)])
        assert (len(values), error) == (MESSAGES, ErrorCode.NONE), cluster[victim].output[printed:]
        assert values == VALUES
        assert assert_replicas_equal(cluster, [(TOPIC, 0)]) > 0
        return cluster[victim].output[printed:]


def start_in_order(cluster: Cluster, order: str, victim: int, others: list[int], *, votes: bool) -> None:
    match order:
        case "damaged first":
            cluster.start(victim, wait=False)
            eventually(lambda: listens(cluster[victim]))
        case "damaged with one other":
            # Whether the sound one may lead depends on who left the in-sync set first; the damaged one must not.
            cluster.start(victim, others[1], wait=votes)
        case "damaged last":
            cluster.start(*others)
            eventually(lambda: leads(cluster, *others), PATIENCE_S)
    cluster.start(wait=False)


def listens(broker: Broker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), 1).close()
    except OSError:
        return False
    return True


def leads(cluster: Cluster, *nodes: int) -> bool:
    try:
        return described(cluster, TOPIC, 0, *nodes).leader in nodes
    except ClientError:
        return False


@pytest.mark.parametrize(("name", "order", "flush"), FEW)
def test_one_damaged_copy_of_three_costs_nothing(name: str, order: str, flush: str, tmp_path: Path) -> None:
    kind = BY_NAME[name]
    printed = damage_one_of_three(kind, order, flush, tmp_path / "old")
    assert ("quarantined: the broker neither serves nor truncates it: story-0" in printed) != kind.hides_nothing


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_every_damage_to_one_of_three_in_every_order(tmp_path: Path) -> None:
    cases = [(kind, order, "sync") for kind in KINDS for order in ORDERS]
    cases += [(kind, "damaged with one other", "os") for kind in KINDS]
    for number, (kind, order, flush) in enumerate(cases, 1):
        began = time.monotonic()
        print(f"\r{number}/{len(cases)} {kind.name}, {order}, flush={flush} ", end="", flush=True)
        damage_one_of_three(kind, order, flush, tmp_path / f"old-{number}")
        print(f"{time.monotonic() - began:.1f} s, 0 of {MESSAGES} lost", flush=True)
