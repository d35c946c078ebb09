"""The forgetting disk itself: it must forget what a real one may forget, and nothing else."""

import random

import pytest

from skidway.sim.world.disk import SECTOR, Crashed, SimDisk


def crashed(disk: SimDisk, seed: int) -> SimDisk:
    disk.crash(random.Random(seed))
    return disk


def outcomes(prepare, look) -> set[object]:  # type: ignore[no-untyped-def]
    found = set()
    for seed in range(60):
        disk = SimDisk()
        prepare(disk)
        found.add(look(crashed(disk, seed)))
    return found


def durable_file(disk: SimDisk, data: bytes = b"") -> None:
    file = disk.open("f", create=True)
    file.append(data)
    file.sync()
    disk.sync_directory("")


def test_synced_bytes_and_names_stay() -> None:
    assert outcomes(lambda disk: durable_file(disk, b"abc"), lambda disk: disk.read("f")) == {b"abc"}


def test_a_name_may_vanish_and_its_bytes_may_too() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.open("f", create=True).sync()

    assert outcomes(prepare, lambda disk: disk.exists("f")) == {True, False}

    def write(disk: SimDisk) -> None:
        durable_file(disk, b"abc")
        disk.open("f").append(b"def")

    found = outcomes(write, lambda disk: disk.read("f"))
    assert {b"abc", b"abcdef", b"abc\0\0\0"} <= found
    assert all(data[:3] == b"abc" for data in found if isinstance(data, bytes))


def test_sectors_are_lost_on_their_own() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk)
        disk.open("f").append(b"x" * SECTOR * 2)

    holes = outcomes(
        prepare, lambda disk: (disk.size("f"), disk.read("f")[:SECTOR].count(b"x"), disk.read("f")[SECTOR:].count(b"x"))
    )
    assert (2 * SECTOR, 0, SECTOR) in holes
    assert (2 * SECTOR, SECTOR, 0) in holes


def test_renames_and_removals_need_a_directory_sync() -> None:
    def rename(disk: SimDisk) -> None:
        durable_file(disk, b"abc")
        disk.rename("f", "g")

    assert outcomes(rename, lambda disk: tuple(disk.list(""))) == {("f",), ("g",)}

    def remove(disk: SimDisk) -> None:
        durable_file(disk)
        disk.remove("f")

    assert outcomes(remove, lambda disk: tuple(disk.list(""))) == {("f",), ()}


def test_an_atomic_write_is_the_old_or_the_new() -> None:
    sizes = set()
    for stop in range(1, 9):
        for seed in range(20):
            disk = SimDisk()
            disk.write_atomic("f", b"old")
            disk.crash_at = disk.operations + stop
            try:
                disk.write_atomic("f", b"brand new")
                assert crashed(disk, seed).read("f") == b"brand new"
            except Crashed:
                sizes.add(crashed(disk, seed).read("f"))
    assert sizes == {b"old", b"brand new"}


def test_a_failed_sync_loses_the_bytes_for_good() -> None:
    disk = SimDisk()
    durable_file(disk, b"abc")
    file = disk.open("f")
    file.append(b"def")
    disk.failing_syncs = {disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert disk.read("f") == b"abcdef"
    file.sync()
    assert crashed(disk, 1).read("f") == b"abc\0\0\0"


def failed_sync(disk: SimDisk) -> None:
    durable_file(disk, b"a" * SECTOR)
    disk.open("f").append(b"b" * SECTOR * 3)
    disk.failing_syncs = {disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        disk.open("f").sync()


def test_the_next_process_sees_what_a_failed_sync_lost_and_cannot_tell() -> None:
    disk = SimDisk()
    failed_sync(disk)
    disk.kill()
    disk.open("f").sync()
    assert disk.read("f").count(b"b") == 3 * SECTOR
    assert crashed(disk, 1).read("f") == b"a" * SECTOR + bytes(3 * SECTOR)


def test_new_blocks_whose_first_write_failed_stay_empty_whatever_is_written_to_them() -> None:
    disk = SimDisk()
    durable_file(disk, b"a" * 10)
    file = disk.open("f")
    file.append(b"b" * (2 * SECTOR - 10))
    disk.failing_syncs = {disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.append(b"c")
    file.truncate(SECTOR + 5)
    file.append(b"d" * SECTOR)
    file.sync()
    assert file.read_at(SECTOR, SECTOR + 5) == b"b" * 5 + b"d" * SECTOR
    assert crashed(disk, 1).read("f") == b"a" * 10 + bytes(2 * SECTOR - 10) + b"d" * 5
    disk.open("f").append(b"e" * SECTOR)
    disk.open("f").sync()
    assert crashed(disk, 1).read("f")[-SECTOR:] == b"e" * SECTOR, "after a reboot it knows"


def test_lost_pages_may_be_dropped_while_the_machine_goes_on() -> None:
    found = set()
    for seed in range(60):
        disk = SimDisk()
        failed_sync(disk)
        disk.evict(random.Random(seed))
        data = disk.read("f")
        assert data[:SECTOR] == b"a" * SECTOR
        assert len(data) == 4 * SECTOR
        found.add(tuple(data[number * SECTOR] for number in (1, 2, 3)))
    assert {(98, 98, 98), (0, 98, 98), (98, 0, 98), (0, 98, 0)} <= found


def test_a_full_disk_takes_nothing_of_a_write() -> None:
    disk = SimDisk(capacity=10)
    file = disk.open("f", create=True)
    assert file.append(b"12345678") == 0
    with pytest.raises(OSError, match="No space"):
        file.append(b"abc")
    assert file.size() == 8
    assert disk.usage() == (10, 2)
    assert file.append(b"ab") == 8


def test_a_removed_file_stays_readable_through_its_object() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.append(b"abc")
    disk.remove("f")
    assert file.read_at(1, 9) == b"bc"
    with pytest.raises(FileNotFoundError):
        disk.open("f")


def test_the_same_seed_forgets_the_same() -> None:
    def run() -> list[bytes]:
        disk = SimDisk()
        for name in "abc":
            disk.open(name, create=True).append(name.encode() * 2000)
        disk.crash(random.Random(7))
        return [disk.read(name) for name in disk.list("")]

    assert run() == run()
