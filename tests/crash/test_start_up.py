"""How long a start takes: with many partitions, and with a large log after a crash. Prints what it measured."""

import time
from pathlib import Path

import pytest
from real_load import connect, start_offset

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.testing import Broker
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

MIB = 1 << 20
PARTITIONS = 1_000
LOG_BYTES = 2_500 * MIB
SECONDS_MAX = 10.0
UNSYNCED_SECONDS_MAX = 60.0
"""Every one of them is synced before it is served: the disk's latency is the limit."""
LATEST = -1


def timed_start(broker: Broker, what: str) -> float:
    began = time.monotonic()
    broker.start()
    took = time.monotonic() - began
    print(f"start with {what}: {took:.2f} s")
    return took


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_thousand_partitions_open_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skidway.testing.broker.START_TIMEOUT_S", 120.0)
    with Broker(data_dir=tmp_path / "data", flush="os") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("wide", partitions=PARTITIONS)
        batch = bytes(build_batch([Record(0, 1, None, bytes(200)) for _ in range(20)]))
        with connect(broker) as connection:
            for partition in range(PARTITIONS):
                data = TopicProduceData("wide", partition_data=[PartitionProduceData(partition, bytearray(batch))])
                connection.send(ProduceRequest(None, 1, 1_000, [data]), version=12)
                (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
                assert answer.error_code == ErrorCode.NONE
        broker.kill()
        assert (
            timed_start(broker, f"{PARTITIONS} partitions that were never synced, after kill -9") < UNSYNCED_SECONDS_MAX
        )
        began = time.monotonic()
        assert broker.stop(120.0) == 0
        print(f"clean stop with {PARTITIONS} partitions without a checkpoint: {time.monotonic() - began:.2f} s")
        assert timed_start(broker, f"{PARTITIONS} partitions after a clean stop") < SECONDS_MAX
        broker.kill()
        assert timed_start(broker, f"{PARTITIONS} idle partitions after kill -9") < SECONDS_MAX
        with connect(broker) as connection:
            assert start_offset(connection, "wide", PARTITIONS - 1) == 0
        broker.kill()


def fill(broker: Broker, total_bytes: int) -> int:
    """Produce large batches, several in flight; returns how many records there are."""
    values = [Record(0, 1, None, bytes([number % 251]) * 1_000) for number in range(900)]
    batch = bytes(build_batch(values))
    sent = answered = 0
    with connect(broker) as connection:
        while answered * len(batch) < total_bytes:
            while sent - answered < 4:
                data = TopicProduceData("large", partition_data=[PartitionProduceData(0, bytearray(batch))])
                connection.send(ProduceRequest(None, 1, 60_000, [data]), version=12)
                sent += 1
            (answer,) = connection.receive(ProduceResponse).responses[0].partition_responses
            assert answer.error_code == ErrorCode.NONE
            answered += 1
        while answered < sent:
            connection.receive(ProduceResponse)
            answered += 1
    return sent * len(values)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_large_log_opens_in_seconds_after_a_crash(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", flush="os") as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("large", partitions=1, configs={"segment.bytes": str(512 * MIB)})
        records = fill(broker, LOG_BYTES)
        broker.kill()
        took = timed_start(broker, f"a log of {LOG_BYTES // MIB} MB after kill -9 under load")
        with connect(broker) as connection:
            asked = ListOffsetsTopic("large", [ListOffsetsPartition(0, -1, LATEST)])
            (end,) = connection.call(ListOffsetsRequest(-1, 0, [asked]), ListOffsetsResponse).topics[0].partitions
        assert end.offset == records
        assert took < SECONDS_MAX
        assert broker.stop() == 0
        assert timed_start(broker, f"a log of {LOG_BYTES // MIB} MB after a clean stop") < SECONDS_MAX
