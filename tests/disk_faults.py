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
from waiting import comes_true


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


class Ext4Volume:
    """An ext4 file system in a file, mounted at `path`, that can turn read-only under whoever uses it."""

    def __init__(self, path: Path, image: Path) -> None:
        self.path = path
        self._image = image

    def mount(self) -> None:
        options = "loop,errors=remount-ro"
        _run_or_skip(["mount", "-t", "ext4", "-o", options, str(self._image), str(self.path)], "mount an ext4 image")

    def unmount(self) -> None:
        """Also while it is in use."""
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def turn_read_only(self) -> None:
        """As the kernel does when it comes upon an error; a remount by hand is refused while files are open."""
        device = os.stat(self.path).st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        trigger = Path(f"/sys/fs/ext4/{name}/trigger_fs_error")
        if not trigger.exists():
            pytest.skip("this kernel has no trigger_fs_error for ext4")
        trigger.write_text("1")

    def repair(self) -> None:
        """What an operator does once nobody uses it: unmount, check, mount."""
        self.unmount()
        subprocess.run(["fsck.ext4", "-p", str(self._image)], check=False, capture_output=True)
        self.mount()


@contextlib.contextmanager
def ext4_volume(path: Path, megabytes: int) -> Iterator[Ext4Volume]:
    image = path.with_name(f"{path.name}.ext4")
    path.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run_or_skip(["mkfs.ext4", "-q", "-F", str(image)], "make an ext4 image")
    volume = Ext4Volume(path, image)
    volume.mount()
    try:
        yield volume
    finally:
        volume.unmount()


def _run_or_skip(command: list[str], what: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot {what} here: {done.stderr.strip()}")


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
        attached = comes_true(lambda: process.poll() is not None or all(_traced(path) for path in status))
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
