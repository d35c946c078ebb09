"""This process as the holder of a lease, and whether another holder's process is known to be gone.

Only a process in the same process table can be looked up. A container has a table of its own, though its host name may
be another's; so the table is told by the machine's boot and the kernel's name for it, where Linux says them.
"""

import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path

from skidway.spark.lease.decisions import Holder

PROC = Path("/proc")
START_FIELD = 19
"""Of /proc/PID/stat behind the program's name, from 0: the clock ticks after which the process began."""


def this_driver() -> Holder:
    pid = os.getpid()
    return Holder(socket.gethostname(), _machine(), pid, _started(pid) or "", secrets.token_hex(8))


def is_gone(holder: Holder) -> bool:
    """True only if that is sure."""
    if not holder.machine or holder.machine != _machine():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    started = _started(holder.pid)
    return bool(holder.started) and started is not None and started != holder.started


def _machine() -> str:
    with suppress(OSError):
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"
    return ""


def _started(pid: int) -> str | None:
    with suppress(OSError, IndexError):
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[START_FIELD]
    return None
