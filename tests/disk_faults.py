"""Disks that misbehave under real brokers: a small file system that fills up, and syncs that fail."""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skidway.testing import Broker
from waiting import eventually


@contextlib.contextmanager
def small_file_system(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own at `path`; the test is skipped where nothing can be mounted."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(volume: Path) -> Path:
    """Not a block is left."""
    filler = volume / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


@contextlib.contextmanager
def failing_syncs(broker: Broker, first: int) -> Iterator[None]:
    """From the `first` one of each thread on, fdatasync of the running broker fails with EIO."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: apt-get install strace")
    inject = f"inject=fdatasync:error=EIO:when={first}+"
    command = [strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject, "-p", str(broker.pid)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    errors: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or []), daemon=True)
    reader.start()
    try:
        status = [Path(f"/proc/{broker.pid}/task/{task}/status") for task in os.listdir(f"/proc/{broker.pid}/task")]
        attached = eventually(lambda: process.poll() is not None or all(_traced(path) for path in status))
        assert attached, "strace did not attach to all threads"
        if process.poll() is not None:
            reader.join()
            pytest.skip(f"strace cannot attach here: {''.join(errors).strip()}")
        yield
    finally:
        process.terminate()
        process.wait()


def _traced(status: Path) -> bool:
    try:
        text = status.read_text()
    except OSError:
        return True  # a thread that has ended
    return "TracerPid:\t0\n" not in text
