"""Ports for servers that another process will bind: a range that this process alone gives out.

A port that is merely free at the moment may be given out twice by two processes that look at the same time, as test
workers do. So a process locks a range for as long as it lives; the lock goes with the process, however it ends. The
ranges lie below those that the system gives to outgoing connections.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

FIRST, END, SIZE = 20_000, 32_000, 100


_turn = itertools.count()


def free_ports(count: int = 1) -> int:
    """The first of so many ports in a row on 127.0.0.1 that nobody uses and nobody else is given."""
    own = _own_range()
    for _ in own:
        first = own[next(_turn) * count % len(own)]
        if first + count <= own.stop and _free(range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row from {own.start} to {own.stop - 1}")


@cache
def _own_range() -> range:
    """Locked until this process ends."""
    folder = Path(tempfile.gettempdir()) / f"skidway-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for first in range(FIRST, END, SIZE):
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return range(first, first + SIZE)
    raise OSError(f"all ranges of ports from {FIRST} to {END} are locked by other processes: see {folder}")


def _free(ports: range) -> bool:
    with ExitStack() as held:
        for port in ports:
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
