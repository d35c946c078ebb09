"""Compaction in a child process: its result, its failures, and that it never outlives whoever asked."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from skidway.errors import StorageError
from skidway.log.compaction.compaction import CompactionTask, Source, compact
from skidway.records.record import Record, build_batch
from skidway.server.compactor import ChildCompactor
from skidway.server.disk import RealDisk

NOW = 1_700_000_000_000


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    disk = RealDisk(str(tmp_path))
    disk.make_directory("state-0")
    return disk


def make_task(disk: RealDisk, records: int, keys: int, *, damaged: bool = False) -> CompactionTask:
    file = disk.open(f"state-0/{0:020d}.log", create=True)
    for offset in range(0, records, 500):
        chunk = [Record(0, NOW, b"key-%d" % (n % keys), b"v" * 30) for n in range(offset, min(offset + 500, records))]
        batch = build_batch(chunk, base_offset=offset)
        if damaged:
            batch[-1] ^= 1
        file.append(batch)
    return CompactionTask(
        directory="state-0",
        token="t",
        sources=[Source(0, records, file.size())],
        aborted=[],
        marked={},
        segment_bytes=1 << 30,
        dirty_offset=0,
        now_ms=NOW,
        delete_retention_ms=0,
        index_interval_bytes=4096,
        producers={7: 3},
        map_bytes_max=1 << 20,
        decompressed_bytes_max=1 << 20,
    )


def test_the_child_does_what_the_function_does(disk: RealDisk) -> None:
    task = make_task(disk, 3000, 100)
    there = ChildCompactor(disk.root).run(task)
    cleaned = f"state-0/{0:020d}.log.t.cleaned"
    written = disk.read(cleaned)
    disk.remove(cleaned)
    here = compact(disk, task)
    assert there == here
    assert (there.records_kept, there.records_dropped, there.keys) == (100, 2900, 100)
    assert disk.read(cleaned) == written


def test_damage_is_told_apart_from_a_disk_that_refuses(disk: RealDisk) -> None:
    with pytest.raises(StorageError, match="damaged batch"):
        ChildCompactor(disk.root).run(make_task(disk, 10, 10, damaged=True))
    task = make_task(disk, 10, 10)
    task.directory = "no-such-0"
    with pytest.raises(FileNotFoundError):
        ChildCompactor(disk.root).run(task)


def test_a_child_that_makes_no_sense_is_an_error(disk: RealDisk) -> None:
    task = make_task(disk, 10, 10)
    task.producers = {"seven": 3}  # type: ignore[dict-item]
    with pytest.raises(OSError, match="ended with 1"):
        ChildCompactor(disk.root).run(task)


def test_it_can_be_stopped(disk: RealDisk) -> None:
    compactor = ChildCompactor(disk.root)
    task = make_task(disk, 200_000, 200_000)
    failures: list[OSError] = []

    def run() -> None:
        try:
            compactor.run(task)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 60
    while compactor._child is None and time.monotonic() < deadline:
        time.sleep(0.005)
    compactor.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert len(failures) == 1
    compactor.stop()  # with nothing under way


def test_it_ends_with_its_parent(disk: RealDisk) -> None:
    """An orphan would write into files that are not its business any more."""
    task = make_task(disk, 400_000, 400_000)
    script = f"""
import sys, msgspec
from skidway.log.compaction.compaction import CompactionTask
from skidway.server.compactor import ChildCompactor
import threading, time, os
compactor = ChildCompactor({disk.root!r})
task = msgspec.json.decode(sys.stdin.buffer.read(), type=CompactionTask)
threading.Thread(target=lambda: compactor.run(task), daemon=True).start()
while compactor._child is None: time.sleep(0.001)
print(compactor._child.pid, flush=True)
time.sleep(0.3)
os.kill(os.getpid(), 9)
"""
    parent = subprocess.run([sys.executable, "-c", script], input=msgspec.json.encode(task), capture_output=True)
    child = int(parent.stdout)
    deadline = time.monotonic() + 60
    while _alive(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)
    assert not disk.exists(f"state-0/{0:020d}.index.t.cleaned"), "it was killed too late to prove anything"


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")
