"""Real brokers on a disk that is full, and on one whose syncs fail."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_load import Ledger, await_true, connect, produce_once, read_partition

from disk_faults import failing_syncs, small_file_system
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.errors import ErrorCode
from skidway.testing import Broker

MIB = 1 << 20
TOPIC = "story"
VALUE_BYTES = 16 * 1024
CONFIGS = {"segment.bytes": str(MIB), "file.delete.delay.ms": "0"}


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "volume", 12) as path:
        yield path


class Writer:
    def __init__(self, ledger: Ledger, topic: str = TOPIC) -> None:
        self.ledger = ledger
        self.topic = topic
        self.number = 0

    def write(self, connection: Connection, acks: int = -1, size: int = VALUE_BYTES) -> ErrorCode:
        self.number += 1
        values = [b"w:%d:%s" % (self.number, os.urandom(size))]
        code, offset = produce_once(connection, self.topic, 0, values, acks)
        if code == ErrorCode.NONE:
            self.ledger.acknowledge((self.topic, 0), offset, values)
        return ErrorCode(code)

    def until_refused(self, connection: Connection) -> int:
        for taken in range(2_000):
            if (code := self.write(connection)) != ErrorCode.NONE:
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                return taken
        raise AssertionError("the volume never became full")


def create(broker: Broker, *topics: str, **configs: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for topic in topics:
            Admin(cluster).create_topic(topic, partitions=1, configs={**CONFIGS, **configs})


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_a_full_disk_refuses_writes_serves_reads_and_heals_without_a_restart(small_volume: Path, flush: str) -> None:
    filler = small_volume / "filler"
    filler.write_bytes(bytes(4 * MIB))
    ledger = Ledger()
    writer = Writer(ledger)
    with Broker(data_dir=small_volume / "data", checkpoint_ms=200, retention_check_ms=200) as broker:
        create(broker, TOPIC, flush=flush)
        with connect(broker) as connection:
            assert writer.until_refused(connection) > 100
            for acks in (-1, 1):
                assert writer.write(connection, acks) == ErrorCode.KAFKA_STORAGE_ERROR
            ledger.verify(broker)
            filler.unlink()
            assert writer.write(connection) == ErrorCode.NONE, "there is room again"
            ledger.verify(broker)
            writer.until_refused(connection)
        # Full once more: neither way down loses anything, and with some room the broker comes up again.
        broker.kill()
        make_a_little_room(broker)
        broker.start()
        ledger.verify(broker)
        with connect(broker) as connection:
            writer.until_refused(connection)
        broker.stop()
        assert "Traceback" not in broker.output, broker.output[-3000:]
        make_a_little_room(broker)
        broker.start()
        ledger.verify(broker)


def make_a_little_room(broker: Broker) -> None:
    """What an operator does: drop something that is not data. Here, that is a remount with more room."""
    volume = broker.data_dir.parent
    size = shutil.disk_usage(volume).total
    subprocess.run(["mount", "-o", f"remount,size={size + 256 * 1024}", str(volume)], check=True)


def test_deleting_records_and_topics_makes_room_on_a_full_disk(small_volume: Path) -> None:
    ledger = Ledger()
    writer, other = Writer(ledger), Writer(ledger, "other")
    with Broker(data_dir=small_volume / "data", checkpoint_ms=100, retention_check_ms=100) as broker:
        create(broker, TOPIC, "other")
        with connect(broker) as connection, Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            for _ in range(100):
                assert other.write(connection) == ErrorCode.NONE
            writer.until_refused(connection)
            last = max(ledger.snapshot()[TOPIC, 0])
            ledger.deleted_to[TOPIC, 0] = last
            admin.delete_records(TOPIC, {0: last})
            await_true(lambda: writer.write(connection) == ErrorCode.NONE, "room after records were deleted")
            ledger.verify(broker)
            # A batch that is smaller than a page may fit where a large one did not: the deletion is written down.
            writer.until_refused(connection)
            ledger.acknowledged.pop(("other", 0))
            admin.delete_topic("other")
            await_true(lambda: writer.write(connection) == ErrorCode.NONE, "room after a topic was deleted")
        ledger.verify(broker)
        broker.restart(kill=True)
        ledger.verify(broker)


def test_a_broker_that_starts_on_a_full_disk_serves_reads(small_volume: Path) -> None:
    writer = Writer(Ledger())
    with Broker(data_dir=small_volume / "data") as broker:
        create(broker, TOPIC)
        with connect(broker) as connection:
            writer.until_refused(connection)
        broker.kill()
        # Not a block is left but what the last ones of the files have room for.
        with contextlib.suppress(OSError), (small_volume / "crumbs").open("wb", buffering=0) as crumbs:
            while True:
                crumbs.write(bytes(4096))
        broker.start()
        writer.ledger.verify(broker)
        with connect(broker) as connection:
            assert writer.write(connection) == ErrorCode.KAFKA_STORAGE_ERROR
        (small_volume / "crumbs").unlink()
        with connect(broker) as connection:
            assert writer.write(connection, size=1_000) == ErrorCode.NONE
        writer.ledger.verify(broker)


def test_a_failed_sync_stops_writes_for_good_and_reads_go_on(tmp_path: Path) -> None:
    ledger = Ledger()
    writer, cached = Writer(ledger), Writer(ledger, "cached")
    with Broker(data_dir=tmp_path / "data") as broker:
        create(broker, TOPIC)
        create(broker, "cached", flush="os")
        with connect(broker) as connection:
            for _ in range(5):
                assert writer.write(connection) == ErrorCode.NONE
                assert cached.write(connection) == ErrorCode.NONE
            with failing_syncs(broker, first=2):
                codes = [writer.write(connection, size=100) for _ in range(20)]
            assert ErrorCode.KAFKA_STORAGE_ERROR in codes
            first = codes.index(ErrorCode.KAFKA_STORAGE_ERROR)
            assert set(codes[:first]) <= {ErrorCode.NONE}
            assert set(codes[first:]) == {ErrorCode.KAFKA_STORAGE_ERROR}
            # The syncs work again, but what they would prove is nothing.
            assert writer.write(connection, size=100) == ErrorCode.KAFKA_STORAGE_ERROR
            assert writer.write(connection, acks=1, size=100) == ErrorCode.KAFKA_STORAGE_ERROR
            assert cached.write(connection, size=100) == ErrorCode.KAFKA_STORAGE_ERROR
            _, visible = read_partition(connection, TOPIC, 0)
            assert visible == ledger.snapshot()[TOPIC, 0], "only what was acknowledged is shown"
        ledger.verify(broker)
        assert "accepts no more writes" in broker.output
        broker.stop()
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        assert not (broker.data_dir / "last-run").exists()
        broker.start()
        # The machine went on, and with it the page cache: what the disk has of this, nobody knows before.
        assert "unsynced bytes to new files" in broker.output
        assert (broker.data_dir / "last-run").exists()
        ledger.verify(broker)
        with connect(broker) as connection:
            assert writer.write(connection) == ErrorCode.NONE
        ledger.verify(broker)
        broker.restart(kill=True)
        assert broker.output.count("unsynced bytes to new files") == 1, "nothing has failed since"
        ledger.verify(broker)
