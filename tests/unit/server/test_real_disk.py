"""The real disk: appends that are whole or not there, durable replacement, one broker per directory."""

import contextlib
import errno
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skidway.server import disk as disk_module
from skidway.server.disk import DataDirectoryInUse, RealDisk


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path / "data"))


def test_appends_return_where_they_begin(disk: RealDisk) -> None:
    file = disk.open("a.log", create=True)
    assert file.append(b"hello") == 0
    assert file.append(memoryview(b" wide"), bytearray(b" "), b"world") == 5
    assert file.size() == 16
    assert file.read_at(0, 100) == b"hello wide world"
    assert file.read_at(6, 4) == b"wide"
    assert file.read_at(16, 4) == b""
    again = disk.open("a.log")
    assert again.size() == 16
    assert again.append(b"!") == 16


def modes(root: Path) -> set[tuple[str, int]]:
    return {(path.name, path.stat().st_mode & 0o777) for path in [root, *root.rglob("*")]}


def fill(root: Path) -> None:
    disk = RealDisk(str(root))
    disk.make_directory("t-0")
    disk.open("t-0/a.log", create=True).close()
    disk.write_atomic("meta", b"x")
    disk.close()


def with_umask(umask: int, root: Path) -> set[tuple[str, int]]:
    before = os.umask(umask)
    try:
        fill(root)
    finally:
        os.umask(before)
    return modes(root)


def test_other_users_cannot_read_what_is_stored(tmp_path: Path) -> None:
    files = {(name, 0o640) for name in (".lock", "a.log", "meta")}
    assert with_umask(0o022, tmp_path / "data") == files | {("data", 0o750), ("t-0", 0o750)}
    assert with_umask(0o000, tmp_path / "open") == files | {("open", 0o750), ("t-0", 0o750)}


def test_the_umask_may_close_it_further(tmp_path: Path) -> None:
    files = {(name, 0o600) for name in (".lock", "a.log", "meta")}
    assert with_umask(0o077, tmp_path / "data") == files | {("data", 0o700), ("t-0", 0o700)}


def test_a_directory_that_is_closed_to_the_group_stays_so_and_one_that_is_open_is_left_alone(tmp_path: Path) -> None:
    closed, opened = tmp_path / "closed", tmp_path / "opened"
    closed.mkdir(0o700)
    opened.mkdir()
    opened.chmod(0o755)
    assert with_umask(0o022, closed) == {
        ("closed", 0o700), ("t-0", 0o700), (".lock", 0o600), ("a.log", 0o600), ("meta", 0o600)
    }  # fmt: skip
    assert ("opened", 0o755) in with_umask(0o022, opened)
    assert ("a.log", 0o640) in modes(opened)


def test_nothing_to_append_is_fine(disk: RealDisk) -> None:
    file = disk.open("a.log", create=True)
    assert file.append(b"x") == 0
    assert file.append() == file.append(b"") == file.append(b"", b"") == 1


def test_more_buffers_than_one_call_takes(disk: RealDisk) -> None:
    file = disk.open("a.log", create=True)
    pieces = [bytes([number % 256]) * (number % 7) for number in range(5_000)]
    file.append(*pieces)
    assert file.read_at(0, 1 << 20) == b"".join(pieces)


def test_short_writes_are_completed(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_pwrite, whole_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(disk_module.os, "pwrite", lambda fd, data, at: whole_pwrite(fd, memoryview(data)[:3], at))
    monkeypatch.setattr(disk_module.os, "pwritev", lambda fd, data, at: whole_pwritev(fd, [data[0][:2]], at))
    file = disk.open("a.log", create=True)
    assert file.append(b"0123456789") == 0
    assert file.append(b"abc", b"defgh") == 10
    assert file.read_at(0, 100) == b"0123456789abcdefgh"


@pytest.mark.parametrize("buffers", [(b"x" * 5_000,), (b"y" * 2_000, b"z" * 3_000)])
def test_a_refused_append_leaves_nothing(disk: RealDisk, buffers: tuple[bytes, ...]) -> None:
    """A limit on file size gives a short write first and an error after it, as a full disk does."""
    script = textwrap.dedent(f"""
        import os, resource, signal, sys
        from skidway.server.disk import RealDisk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))
        disk = RealDisk({disk.root + "-limited"!r})
        file = disk.open("a.log", create=True)
        file.append(b"kept" * 100)
        try:
            file.append(*{buffers!r})
        except OSError as error:
            print("refused", error.errno)
        assert file.size() == 400, file.size()
        assert os.stat(disk.root + "/a.log").st_size == 400
        assert file.append(b"goes on") == 400
        print(file.read_at(396, 100).decode())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["refused 27", "keptgoes on"]


def test_a_full_disk(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs is not allowed here: {mounted.stderr.decode().strip()}")
    try:
        disk = RealDisk(str(mount))
        file = disk.open("a.log", create=True)
        for _ in range(8):
            file.append(b"q" * 30_000)
        appended = file.size()
        with pytest.raises(OSError, match="No space left"):
            file.append(b"q" * 30_000)
        assert file.size() == appended == os.stat(mount / "a.log").st_size
        with pytest.raises(OSError, match="No space left"):
            disk.write_atomic("checkpoint", b"c" * 100_000)
        assert not disk.exists("checkpoint")
        assert not disk.exists("checkpoint.tmp")
        file.truncate(0)
        assert file.append(b"room again") == 0
        file.close()
        disk.close()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_truncate_then_append(disk: RealDisk) -> None:
    file = disk.open("a.log", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    assert file.append(b"ab") == 4
    assert file.read_at(0, 99) == b"0123ab"


def test_a_sync_that_fails_is_told_before_its_error_is_raised(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    disk.on_sync_failed = lambda: told.append("failed")

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    file = disk.open("a.log", create=True)
    monkeypatch.setattr(disk_module.os, "fsync", failing)
    monkeypatch.setattr(disk_module, "_datasync", failing)
    syncs: list[Callable[[], None]] = [
        file.sync,
        lambda: disk.sync_directory(""),
        lambda: disk.write_atomic("b", b"x"),
    ]
    for number, sync in enumerate(syncs):
        with pytest.raises(OSError, match="Input/output"):
            sync()
        assert len(told) == number + 1


def test_atomic_replacement_keeps_the_old_content_when_it_fails(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomic("checkpoint", b"old")

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_module.os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        disk.write_atomic("checkpoint", b"new")
    monkeypatch.undo()
    assert disk.read("checkpoint") == b"old"
    assert disk.list("") == [".lock", "checkpoint"]
    disk.write_atomic("checkpoint", memoryview(b"newer"))
    assert disk.read("checkpoint") == b"newer"
    assert disk.size("checkpoint") == 5


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_atomic_replacement_that_finds_no_free_descriptor_has_changed_nothing(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    really_open = os.open
    disk.write_atomic("checkpoint", b"old")
    for free in range(3):
        opened: list[int] = []

        def refuse(*arguments: Any, free: int = free, opened: list[int] = opened) -> int:
            if len(opened) == free:
                raise OSError(code, "Too many open files")
            opened.append(really_open(*arguments))
            return opened[-1]

        with monkeypatch.context() as patched:
            patched.setattr(disk_module.os, "open", refuse)
            with contextlib.suppress(OSError):
                disk.write_atomic("checkpoint", b"new")
                break
        assert disk.read("checkpoint") == b"old", free
        assert disk.list("") == [".lock", "checkpoint"]
    assert free == 2
    assert disk.read("checkpoint") == b"new"


def test_directories(disk: RealDisk) -> None:
    disk.make_directory("orders-0")
    disk.make_directory("orders-0")
    disk.open("orders-0/b", create=True)
    disk.open("orders-0/a", create=True)
    assert disk.list("orders-0") == ["a", "b"]
    disk.sync_directory("orders-0")
    disk.sync_directory("")
    disk.rename("orders-0", "orders-0.deadbeef-delete")
    disk.remove("orders-0.deadbeef-delete/a")
    disk.remove("orders-0.deadbeef-delete/a")
    disk.remove_tree("orders-0.deadbeef-delete")
    disk.remove_tree("orders-0.deadbeef-delete")
    assert disk.list("") == [".lock"]
    total, free = disk.usage()
    assert total >= free > 0


def test_removing_a_tree_does_not_follow_links(disk: RealDisk, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    disk.make_directory("topic-0")
    os.symlink(precious, f"{disk.root}/topic-0/link")
    disk.remove_tree("topic-0")
    assert (precious / "file").read_text() == "mine"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "a//b", "a/", ".", "a\0b", ".."])
def test_paths_do_not_lead_out(disk: RealDisk, path: str) -> None:
    for use in (disk.open, disk.read, disk.list, disk.remove, disk.remove_tree, disk.exists):
        with pytest.raises(ValueError, match="not a path inside"):
            use(path)
    with pytest.raises(ValueError, match="never removed"):
        disk.remove_tree("")


def test_a_removed_file_is_readable_until_nobody_holds_it(disk: RealDisk) -> None:
    file = disk.open("a.log", create=True)
    file.append(b"still here")
    disk.remove("a.log")
    assert file.read_at(0, 5) == b"still"
    fd = file.fileno()
    inode = os.fstat(fd).st_ino
    del file
    gc.collect()
    # The number may belong to another thread's file by now.
    with contextlib.suppress(OSError):
        assert os.fstat(fd).st_ino != inode


def test_closing_waits_for_a_running_sync(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a.log", create=True)
    fd = file.fileno()
    begun, go_on, valid = threading.Event(), threading.Event(), []

    def slow_sync(number: int) -> None:
        begun.set()
        go_on.wait(60)
        os.fstat(number)
        valid.append(number)

    monkeypatch.setattr(disk_module, "_datasync", slow_sync)
    thread = threading.Thread(target=file.sync)
    thread.start()
    assert begun.wait(60)
    file.close()
    assert file.fileno() == -1
    go_on.set()
    thread.join()
    assert valid == [fd]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OSError, match="closed file"):
        file.sync()
    file.close()


def test_a_data_directory_has_one_owner(disk: RealDisk) -> None:
    with pytest.raises(DataDirectoryInUse, match=rf"in use by process {os.getpid()}: give each broker its own"):
        RealDisk(disk.root)
    disk.close()
    RealDisk(disk.root).close()


def test_a_missing_file(disk: RealDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("nope")
    with pytest.raises(FileNotFoundError):
        disk.read("nope")
    assert not disk.exists("nope")
