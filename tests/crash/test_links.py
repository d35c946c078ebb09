"""Symbolic links and foreign directories in a data directory: what they lead to is used, and never deleted."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from real_load import Ledger, await_true, connect, produce_once

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.errors import ErrorCode
from skidway.testing import Broker
from skidway.testing.broker import BrokerFailed

TOPIC = "story"
PER_SEGMENT = 20
WRITTEN = 3 * PER_SEGMENT
QUICK: dict[str, Any] = {"checkpoint_ms": 100, "retention_check_ms": 100}


def create(broker: Broker) -> None:
    configs = {"internal.segment.bytes": str(PER_SEGMENT * 1000), "file.delete.delay.ms": "0"}
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, partitions=1, configs=configs)


def write(broker: Broker, ledger: Ledger, count: int) -> None:
    with connect(broker) as connection:
        for _ in range(count):
            values = [b"w:%d:%s" % (ledger.count + 1, bytes(900))]
            code, offset = produce_once(connection, TOPIC, 0, values, -1)
            assert code == ErrorCode.NONE
            ledger.acknowledge((TOPIC, 0), offset, values)


def delete_topic(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).delete_topic(TOPIC)
    await_true(lambda: not list(broker.data_dir.glob(f"{TOPIC}-0*")), "the topic's directory to go")


def test_a_data_directory_that_is_a_link_is_one_directory_by_either_name(tmp_path: Path) -> None:
    ledger = Ledger()
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    with Broker(data_dir=tmp_path / "data", **QUICK) as broker:
        create(broker)
        write(broker, ledger, WRITTEN)
        with pytest.raises(BrokerFailed, match="is in use by process"):
            Broker(data_dir=tmp_path / "disk").start()
        broker.restart(kill=True)
        assert ledger.verify(broker) == WRITTEN
        delete_topic(broker)


@pytest.mark.parametrize("target", ["nowhere", "data"])
def test_a_data_directory_that_leads_nowhere_ends_the_start_with_one_clear_line(tmp_path: Path, target: str) -> None:
    """Also one that leads to itself."""
    (tmp_path / "data").symlink_to(tmp_path / target)
    with pytest.raises(BrokerFailed, match="a symbolic link that does not lead to a directory") as raised:
        Broker(data_dir=tmp_path / "data").start()
    assert "Traceback" not in str(raised.value)


def test_a_partition_on_another_disk_is_served_and_deletion_ends_at_the_link(tmp_path: Path) -> None:
    ledger, elsewhere = Ledger(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("not the broker's")
    with Broker(**QUICK) as broker:
        create(broker)
        write(broker, ledger, WRITTEN)
        broker.stop()
        directory = broker.data_dir / f"{TOPIC}-0"
        first = sorted(directory.glob("*.log"))[0]
        shutil.move(first, elsewhere / "first")
        first.symlink_to(elsewhere / "first")
        (directory / "notes").symlink_to(elsewhere)
        shutil.move(directory, elsewhere / "partition")
        directory.symlink_to(elsewhere / "partition")
        broker.start()
        write(broker, ledger, PER_SEGMENT)
        broker.restart(kill=True)
        assert ledger.verify(broker) == WRITTEN + PER_SEGMENT
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).delete_records(TOPIC, {0: PER_SEGMENT + 1})
        ledger.deleted_to[TOPIC, 0] = PER_SEGMENT + 1
        await_true(lambda: not list(directory.glob(f"{first.name}*")), "the first segment to go")
        assert (elsewhere / "first").exists(), "the link goes, and not what it leads to"
        broker.restart(kill=True)
        ledger.verify(broker)
        delete_topic(broker)
        broker.restart()
        assert {path.name for path in elsewhere.iterdir()} == {"precious", "first", "partition"}


def test_directories_that_only_look_like_partitions_are_kept(tmp_path: Path) -> None:
    """Somebody keeps things in the data directory, under names that a partition could have."""
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.stop()
        backup, link = broker.data_dir / "backup-1", broker.data_dir / "photos-2"
        backup.mkdir()
        (backup / "notes.txt").write_text("mine")
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "cat.jpg").write_text("a cat")
        link.symlink_to(tmp_path / "photos")
        (broker.data_dir / "loop").symlink_to(broker.data_dir / "loop")
        for kill in (True, False):
            broker.start()
            broker.restart(kill=kill)
        kept = [path.read_text() for path in sorted(broker.data_dir.glob("backup-1*/*"))]
        assert kept == ["mine"]
        assert (tmp_path / "photos" / "cat.jpg").read_text() == "a cat"
        assert "backup-1: this log belongs to no topic; the broker keeps it as" in broker.output


def test_a_partition_directory_that_is_a_loop_of_links_stops_only_its_partition(tmp_path: Path) -> None:
    ledger = Ledger()
    with Broker(data_dir=tmp_path / "data", **QUICK) as broker:
        create(broker)
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("other", partitions=1)
        write(broker, ledger, WRITTEN)
        broker.kill()
        other = broker.data_dir / "other-0"
        shutil.rmtree(other)
        other.symlink_to(other)
        printed = len(broker.output)
        broker.start()
        assert ledger.verify(broker) == WRITTEN
        assert "other-0 cannot be read" in broker.output[printed:]
        other.unlink()
