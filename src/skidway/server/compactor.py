"""Compaction in a process of its own: its work holds Python's lock for minutes, and here that lock is another one.

The child gets its task as a line of JSON and works on files alone: it reads closed segments and writes `.cleaned`
files, which mean nothing until the broker says so. It ends when its parent does (its standard input closes), and at
low priority takes only what the broker leaves.
"""

import errno
import os
import subprocess
import sys
import threading

import msgspec

from skidway.errors import StorageError
from skidway.log.compaction.compaction import CompactionResult, CompactionTask, compact
from skidway.server.disk import RealDisk

NICENESS = 5
ERROR_BYTES_MAX = 2_000


class Outcome(msgspec.Struct, omit_defaults=True):
    result: CompactionResult | None = None
    damage: str | None = None
    errno: int = 0
    error: str | None = None


class ChildCompactor:
    """Runs one task at a time, each in a new child."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, task: CompactionTask) -> CompactionResult:
        with self._lock:
            self._child = child = subprocess.Popen(
                [sys.executable, "-m", "skidway.server.compactor", self._root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        try:
            outcome, complaint = _converse(child, msgspec.json.encode(task))
        finally:
            with self._lock:
                self._child = None
        if outcome is None:
            raise OSError(errno.EIO, f"the compaction process ended with {child.returncode}: {complaint}")
        if outcome.damage is not None:
            raise StorageError(outcome.damage)
        if outcome.result is None:
            raise OSError(outcome.errno, outcome.error)
        return outcome.result

    def stop(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.kill()


def _converse(child: "subprocess.Popen[bytes]", line: bytes) -> tuple[Outcome | None, str]:
    """Give the child its task and wait for what comes of it; None when it said nothing that makes sense."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        try:
            child.stdin.write(line + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it ended; why, it may have told
        # It is quiet until its end, and then says less than a pipe holds on the second of them.
        told = child.stdout.read()
        complaint = child.stderr.read(ERROR_BYTES_MAX).decode(errors="replace").strip()
    try:
        return msgspec.json.decode(told, type=Outcome), complaint
    except msgspec.DecodeError:
        return None, complaint


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main(root: str) -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=CompactionTask)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICENESS)
    try:
        outcome = Outcome(result=compact(RealDisk(root, lock=False), task))
    except StorageError as error:
        outcome = Outcome(damage=str(error))
    except OSError as error:
        outcome = Outcome(errno=error.errno or errno.EIO, error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    sys.stdout.buffer.flush()
    os._exit(0)  # without waiting for the thread that waits for the parent


if __name__ == "__main__":
    main(sys.argv[1])
