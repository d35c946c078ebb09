"""One budget for the descriptors of this process: who may have how many, so that no client takes what others need.

A connection takes one, and a second one while its replies wait for it to read. A partition takes one for its active
segment; closed segments that are read or wait for a sync take more, and are closed when files are short. A reserve is
left for what is opened for a moment only (directories, small files) and for whatever else the process has open.
"""

import logging
import sys

import msgspec
import msgspec.structs

from skidway.limits import DEFAULT_LIMITS, Limits

log = logging.getLogger("skidway.server")

RESERVE = 64
RESERVE_SHARE = 8
"""A process with few descriptors leaves this fraction of them, instead of `RESERVE`."""

PARTITIONS_PER_FILE = 2
"""Idle partitions need no descriptor when files are short, but those that are written do until the next sync."""


class Descriptors(msgspec.Struct, frozen=True):
    limits: Limits
    """As they fit: `connections_max`, `connections_per_ip_max` and `partitions_max` may be lower than what was set."""
    files: int
    """Files that logs may have open."""
    waiting: int
    """Connections that may have replies waiting."""


def share_out(limits: Limits, total: int) -> Descriptors:
    """Half of what is scarce goes to connections, most of the other half to files."""
    reserve = min(RESERVE, total // RESERVE_SHARE)
    connections = max(1, min(limits.connections_max, total // 2))
    rest = max(2, total - reserve - connections)
    waiting = max(1, min(connections, rest // 4))
    files = rest - waiting
    partitions = max(1, min(limits.partitions_max, files * PARTITIONS_PER_FILE))
    fitting = msgspec.structs.replace(
        limits,
        connections_max=connections,
        connections_per_ip_max=min(limits.connections_per_ip_max, connections),
        partitions_max=partitions,
    )
    return Descriptors(fitting, files, waiting)


def report(wanted: Limits, given: Descriptors, total: int) -> None:
    """A warning for what was asked for and could not be had; defaults adapt without one."""
    for name in ("connections_max", "partitions_max"):
        asked, got = getattr(wanted, name), getattr(given.limits, name)
        if got < asked:
            level = logging.WARNING if asked != getattr(DEFAULT_LIMITS, name) else logging.DEBUG
            text = "limits.%s is lowered from %d to %d: this process may open %d files (ulimit -n, LimitNOFILE)"
            log.log(level, text, name, asked, got, total)


def raise_limit() -> int:
    """As many descriptors as the system allows this process; returns that number."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return _number(soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return _number(soft)
    return _number(hard)


def _number(limit: int) -> int:
    return limit if limit >= 0 else sys.maxsize
