"""The kernel itself: ext4 on a device that has no room shows what it does not have, and calls it synced.

A loop device over a sparse file on a small file system: when that is full, writing to new blocks fails. Mounting anew
drops the page cache, as a loss of power would, and what is read then is what the disk has.
"""

import contextlib
import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from disk_faults import fill, small_file_system
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.server.disk import RealDisk

SETTINGS = LogSettings(retention_ms=-1)
UNPROVEN = 30

pytestmark = pytest.mark.chaos


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


class Device:
    def __init__(self, volume: Path, mount: Path) -> None:
        self.volume = volume
        self.mount = mount
        self.image = str(volume / "disk.img")

    def remount(self) -> None:
        gc.collect()  # descriptors go with the last reference
        subprocess.run(["umount", str(self.mount)], check=True)
        run("mount", "-o", "loop", self.image, str(self.mount))

    @contextlib.contextmanager
    def disk(self) -> Iterator[RealDisk]:
        disk = RealDisk(str(self.mount / "data"))
        try:
            yield disk
        finally:
            disk.close()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    with small_file_system(tmp_path / "volume", 24) as volume:
        mount = tmp_path / "mounted"
        mount.mkdir()
        device = Device(volume, mount)
        run("truncate", "-s", "64m", device.image)
        # With a journal there is no such story: its first failed write makes the whole file system read-only.
        run("mkfs.ext4", "-q", "-O", "^has_journal", device.image)
        run("mount", "-o", "loop", device.image, str(mount))
        try:
            yield device
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)


def append(log: Log, count: int) -> None:
    for _ in range(count):
        batch = build_batch([Record(0, 1, b"k", os.urandom(100_000), [])])
        log.append(batch, read_header(batch), 1, 1)


def write_in_vain(device: Device) -> None:
    """Two batches are synced, one of them with a checkpoint; the sync of the others fails."""
    with device.disk() as disk:
        log = Logs(disk).create("orders", 0, bytes(range(16)), SETTINGS, 1)
        for saves in (True, False):
            append(log, 1)
            ticket = checkpointing.begin(log) if saves else log.begin_sync()
            assert ticket is not None
            ticket.run()
            log.finish_sync(ticket)
        filler = fill(device.volume)
        append(log, UNPROVEN)
        ticket = log.begin_sync()
        assert ticket is not None
        with pytest.raises(OSError, match=r"No space|Input/output"):
            ticket.run()
        filler.unlink()


def load(device: Device, *, anew: bool = False) -> tuple[int, int]:
    """(synced offset, bytes written anew)"""
    with device.disk() as disk:
        logs = Logs(disk)
        written = logs.write_anew() if anew else 0
        return logs.load("orders", 0, SETTINGS, 1).synced_offset, written


def test_a_new_process_believes_the_page_cache_and_loses(device: Device) -> None:
    write_in_vain(device)
    assert load(device) == (2 + UNPROVEN, 0), "the sync of the start has succeeded"
    device.remount()
    assert 2 <= load(device)[0] < 2 + UNPROVEN, "this kernel tells the truth: nothing need be written anew"


def test_what_was_written_anew_is_there(device: Device) -> None:
    write_in_vain(device)
    end_offset, written = load(device, anew=True)
    assert end_offset == 2 + UNPROVEN
    assert written > UNPROVEN * 100_000
    device.remount()
    assert load(device)[0] == end_offset
