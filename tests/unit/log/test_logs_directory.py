"""A data directory: names, checkpoints and marks as Kafka lays them out, and partitions that come and go."""

import random

import pytest

from skidway.errors import StorageError
from skidway.log import retention
from skidway.log.directories import parse_directory_name, parse_partition_metadata, partition_metadata
from skidway.log.durability import checkpointing
from skidway.log.durability.checkpoints import CorruptCheckpoint, read_epochs, read_offsets, write_epochs, write_offsets
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk

SETTINGS = LogSettings(segment_bytes=400, file_delete_delay_ms=100)
ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))


def append(log: Log, times: int = 1) -> None:
    for _ in range(times):
        batch = build_batch([Record(0, 1000, b"k", b"v" * 40, [])])
        log.append(batch, read_header(batch), 0, 1000)


def sync(log: Log) -> None:
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    log.advance_high_watermark(log.synced_offset)


def save(logs: Logs, now_ms: int = 0) -> None:
    if (removal := logs.directories.begin_removal(now_ms)) is not None:
        removal.run()
    ticket = logs.begin_save()
    assert ticket is not None
    assert logs.begin_save() is None
    ticket.run()
    logs.finish_save(ticket)


def test_directory_names_end_in_the_partition() -> None:
    assert parse_directory_name("a-b.c-12") == ("a-b.c", 12)
    assert parse_directory_name("__consumer_offsets-0") == ("__consumer_offsets", 0)
    for name in ("meta.properties", "a-", "-3", "a-0.0123-delete", "a-0.12-future", "a-٣"):
        assert parse_directory_name(name) is None


def test_partition_metadata_is_kafkas_text() -> None:
    data = partition_metadata(ID)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(data + b"\n") == ID
    for damaged in (b"", data[:-1], b"\0" * 40, data.replace(b"0", b"1", 1)):
        assert parse_partition_metadata(damaged) is None


def test_checkpoints_are_kafkas_text() -> None:
    offsets = {("b", 0): 7, ("a", 10): 5, ("a", 2): 6}
    data = write_offsets(offsets)
    assert data == b"0\n3\na 2 6\na 10 5\nb 0 7\n"
    assert read_offsets(data) == offsets
    assert write_epochs([(0, 0), (5, 120)]) == b"0\n2\n0 0\n5 120\n"
    assert read_epochs(b"0\n2\n0 0\n5 120\n") == [(0, 0), (5, 120)]
    assert read_offsets(b"") == {}
    for damaged in (
        b"1\n0\n",
        b"0\n2\na 2 6\n",
        b"0\n1\na 2\n",
        b"0\n1\na 2 x\n",
        b"0\nx\n",
        b"\0\0\0",
        b"0\n1\na \xff 1\n",
    ):
        with pytest.raises(CorruptCheckpoint):
            read_offsets(damaged)


def test_a_clean_stop_is_marked_and_the_mark_is_used_once() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    log = logs.create("orders", 0, ID, SETTINGS, 0)
    append(log, 9)
    logs.close(clean=True)
    assert disk.read(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert disk.read("recovery-point-offset-checkpoint") == b"0\n1\norders 0 9\n"
    assert disk.read("log-start-offset-checkpoint") == b"0\n0\n"
    disk.crash(random.Random(1))

    logs = Logs(disk)
    assert logs.clean
    assert logs.found == {("orders", 0): ID}
    assert logs.load("orders", 0, SETTINGS, 0).end_offset == 9
    assert logs.get("orders", 0) is not None
    disk.crash(random.Random(2))
    assert not Logs(disk).clean


def test_a_failed_log_is_no_clean_stop() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    append(logs.create("orders", 0, ID, SETTINGS, 0))
    logs.create("orders", 1, ID, SETTINGS, 0).fail("sync failed")
    logs.close(clean=True)
    assert not disk.exists(".kafka_cleanshutdown")


def test_a_new_partition_is_durable_with_its_first_sync() -> None:
    for seed in range(20):
        disk = SimDisk()
        logs = Logs(disk)
        log = logs.create("orders", 0, ID, SETTINGS, 0)
        append(log)
        sync(log)
        disk.crash(random.Random(seed))
        logs = Logs(disk)
        assert logs.found == {("orders", 0): ID}
        assert logs.load("orders", 0, SETTINGS, 0).end_offset == 1


def test_offsets_are_saved_for_all_partitions() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    for partition in (0, 1):
        log = logs.create("orders", partition, ID, SETTINGS, 0)
        append(log, 5)
        sync(log)
    retention.delete_before(log, 3)
    save(logs)
    assert disk.read("log-start-offset-checkpoint") == b"0\n1\norders 1 3\n"
    assert disk.read("replication-offset-checkpoint") == b"0\n2\norders 0 5\norders 1 5\n"
    disk.crash(random.Random(1))
    logs = Logs(disk)
    assert logs.offsets.watermarks == {("orders", 0): 5, ("orders", 1): 5}
    # What is not loaded keeps its entries.
    logs.load("orders", 0, SETTINGS, 0)
    save(logs)
    assert logs.load("orders", 1, SETTINGS, 0).start_offset == 3


def test_a_deleted_partition_is_renamed_and_goes_later() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    append(logs.create("orders", 3, ID, SETTINGS, 0))
    logs.delete("orders", 3, 1000)
    assert logs.get("orders", 3) is None
    name = f"orders-3.{ID.hex()}-delete"
    assert name in disk.list("")
    save(logs, 1099)
    assert name in disk.list("")
    save(logs, 1100)
    assert name not in disk.list("")


def test_long_names_leave_room_for_the_mark() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    logs.create("t" * 249, 12345, ID, SETTINGS, 0)
    logs.delete("t" * 249, 12345, 0)
    assert [len(name) for name in disk.list("") if name.endswith("-delete")] == [255]


def test_a_partition_of_the_same_name_inherits_nothing() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    log = logs.create("orders", 0, ID, SETTINGS, 0)
    append(log, 8)
    sync(log)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    retention.delete_before(log, 6)
    save(logs)
    logs.delete("orders", 0, 0)
    log = logs.create("orders", 0, OTHER_ID, SETTINGS, 0)
    append(log)
    sync(log)
    disk.crash(random.Random(3))
    logs = Logs(disk)
    assert logs.found == {("orders", 0): OTHER_ID}
    log = logs.load("orders", 0, SETTINGS, 0)
    assert (log.start_offset, log.end_offset, log.failure) == (0, 1, None)


def test_a_save_under_way_does_not_bring_old_offsets_back() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    log = logs.create("orders", 0, ID, SETTINGS, 0)
    append(log, 8)
    sync(log)
    retention.delete_before(log, 6)
    ticket = logs.begin_save()
    assert ticket is not None
    logs.delete("orders", 0, 0)
    with pytest.raises(StorageError, match="still being saved"):
        logs.create("orders", 0, OTHER_ID, SETTINGS, 0)
    ticket.run()
    logs.finish_save(ticket)
    log = logs.create("orders", 0, OTHER_ID, SETTINGS, 0)
    append(log, 9)
    sync(log)
    disk.crash(random.Random(3))
    log = Logs(disk).load("orders", 0, SETTINGS, 0)
    assert (log.start_offset, log.end_offset) == (0, 9)


def test_deleting_the_same_topic_id_twice_finds_a_free_name() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    for _ in range(3):
        logs.create("orders", 0, ID, SETTINGS, 0)
        logs.delete("orders", 0, 0)
    assert len([name for name in disk.list("") if name.endswith("-delete")]) == 3


def test_strays_are_kept_aside_and_old_deletions_finished() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    for partition in (0, 1):
        append(logs.create("orders", partition, ID, SETTINGS, 0))
    logs.delete("orders", 1, 0)
    logs.close(clean=True)
    logs = Logs(disk)
    kept = logs.set_aside("orders", 0)
    assert logs.found == {}
    save(logs, 0)
    assert [name for name in disk.list("") if name.startswith("orders")] == [kept]
    assert kept.endswith("-stray")


def test_a_lost_topic_id_is_written_anew() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    append(logs.create("orders", 0, ID, SETTINGS, 0))
    disk.remove("orders-0/partition.metadata")
    logs = Logs(disk)
    assert logs.found == {("orders", 0): None}
    logs.load("orders", 0, SETTINGS, 0, ID)
    disk.crash(random.Random(1))
    assert Logs(disk).found == {("orders", 0): ID}


def test_damaged_checkpoints_lose_nothing() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    append(logs.create("orders", 0, ID, SETTINGS, 0), 9)
    logs.close(clean=True)
    disk.write_atomic("recovery-point-offset-checkpoint", b"\0\0\0")
    logs = Logs(disk)
    assert logs.load("orders", 0, SETTINGS, 0).end_offset == 9


def test_closing_can_be_spread_over_workers() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    for partition in range(3):
        append(logs.create("orders", partition, ID, SETTINGS, 0))
    handed: list[int] = []

    def run(jobs: list) -> None:  # type: ignore[type-arg]
        handed.append(len(jobs))
        for job in jobs:
            job()

    logs.close(clean=True, run=run)
    assert handed == [3]
