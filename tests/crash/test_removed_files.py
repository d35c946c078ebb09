"""Somebody removes files of a running broker: nothing is acknowledged into files that no start would find."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from real_load import Ledger, await_true, connect, produce_once, read_partition

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.errors import ErrorCode
from skidway.testing import Broker
from skidway.testing.broker import BrokerFailed

TOPIC, OTHER = "story", "other"
VALUE = bytes(900)
PER_SEGMENT = 20
SEGMENT_BYTES = PER_SEGMENT * 1000
WRITTEN = 4 * PER_SEGMENT + PER_SEGMENT // 2
"""The last segment is half full: what comes next goes into a file that is open."""


def create(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for topic in (TOPIC, OTHER):
            Admin(cluster).create_topic(topic, partitions=1, configs={"internal.segment.bytes": str(SEGMENT_BYTES)})


def write(connection: Connection, ledger: Ledger, count: int, topic: str = TOPIC) -> list[ErrorCode]:
    codes = []
    for _ in range(count):
        values = [b"w:%d:%s" % (ledger.count + 1, VALUE)]
        code, offset = produce_once(connection, topic, 0, values, -1)
        codes.append(ErrorCode(code))
        if code == ErrorCode.NONE:
            ledger.acknowledge((topic, 0), offset, values)
    return codes


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def remove_the_active_segment(directory: Path) -> None:
    segments(directory)[-1].unlink()


def replace_the_active_segment(directory: Path) -> None:
    """As a tool does that restores a backup."""
    copy = directory / "restored"
    shutil.copy(segments(directory)[-1], copy)
    copy.rename(segments(directory)[-1])


def remove_all_segments(directory: Path) -> None:
    for path in segments(directory):
        path.unlink()


def remove_the_directory(directory: Path) -> None:
    shutil.rmtree(directory)


KINDS = [remove_the_active_segment, replace_the_active_segment, remove_all_segments, remove_the_directory]


@pytest.mark.parametrize("damage", KINDS)
def test_nothing_is_acknowledged_into_a_file_that_was_removed(damage: Callable[[Path], None]) -> None:
    ledger = Ledger()
    with Broker() as broker:
        create(broker)
        with connect(broker) as connection:
            assert set(write(connection, ledger, WRITTEN)) == {ErrorCode.NONE}
            damage(broker.data_dir / f"{TOPIC}-0")
            assert set(write(connection, ledger, 5)) == {ErrorCode.KAFKA_STORAGE_ERROR}
            assert ledger.verify(broker) == WRITTEN, "what is still open is still read"
            assert write(connection, ledger, 1, OTHER) == [ErrorCode.NONE], "the other partitions go on"
        assert "story-0 accepts no more writes, because another program changed its files" in broker.output
        assert broker.output.count("Traceback") == 0


def test_a_start_after_a_segment_was_removed_under_the_broker_does_not_serve_the_rest_as_all_there_was() -> None:
    ledger = Ledger()
    with Broker() as broker:
        create(broker)
        with connect(broker) as connection:
            write(connection, ledger, WRITTEN)
            write(connection, ledger, 1, OTHER)
            remove_the_active_segment(broker.data_dir / f"{TOPIC}-0")
            assert write(connection, ledger, 1) == [ErrorCode.KAFKA_STORAGE_ERROR]
        for kill in (True, False):
            broker.restart(kill=kill)
            with connect(broker) as connection:
                with pytest.raises(AssertionError, match="KAFKA_STORAGE_ERROR"):
                    read_partition(connection, TOPIC, 0)
                assert read_partition(connection, OTHER, 0)[1] == ledger.snapshot()[OTHER, 0]
        assert "quarantined: the broker neither serves nor truncates it: story-0" in broker.output


def test_a_checkpoint_misses_closed_segments_that_nobody_reads() -> None:
    ledger = Ledger()
    with Broker(checkpoint_ms=100) as broker:
        create(broker)
        with connect(broker) as connection:
            write(connection, ledger, WRITTEN)
            segments(broker.data_dir / f"{TOPIC}-0")[1].unlink()

            def is_refused() -> bool:
                return write(connection, ledger, 1) == [ErrorCode.KAFKA_STORAGE_ERROR]

            await_true(is_refused, "a checkpoint that notices")
        assert "00000000000000000020.log: removed while the broker has it open" in broker.output


def test_a_clean_stop_that_finds_a_segment_removed_leaves_word_for_the_next_start() -> None:
    ledger = Ledger()
    with Broker() as broker:
        create(broker)
        with connect(broker) as connection:
            write(connection, ledger, WRITTEN)
        segments(broker.data_dir / f"{TOPIC}-0")[1].unlink()
        broker.restart()
        with connect(broker) as connection, pytest.raises(AssertionError, match="KAFKA_STORAGE_ERROR"):
            read_partition(connection, TOPIC, 0)


def test_a_second_broker_is_kept_out_although_the_lock_file_was_removed() -> None:
    with Broker() as broker:
        (broker.data_dir / ".lock").unlink()
        with pytest.raises(BrokerFailed, match="is in use"):
            Broker(data_dir=broker.data_dir).start()
        with connect(broker) as connection, pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
            read_partition(connection, TOPIC, 0)


def test_small_files_that_are_removed_under_the_broker_cost_nothing() -> None:
    """Indexes, epochs, snapshots, checkpoints: all of them are made from the log again."""
    ledger = Ledger()
    with Broker(checkpoint_ms=100) as broker:
        create(broker)
        with connect(broker) as connection:
            write(connection, ledger, WRITTEN)
            await_true(lambda: (broker.data_dir / "replication-offset-checkpoint").exists(), "a checkpoint")
            for path in [*broker.data_dir.glob("*-checkpoint"), *(broker.data_dir / f"{TOPIC}-0").iterdir()]:
                if path.suffix not in (".log", ".metadata"):
                    path.unlink(missing_ok=True)  # a checkpoint may replace it meanwhile
            assert set(write(connection, ledger, PER_SEGMENT)) == {ErrorCode.NONE}
            ledger.verify(broker)
        for kill in (True, False):
            broker.restart(kill=kill)
            assert ledger.verify(broker) == WRITTEN + PER_SEGMENT
