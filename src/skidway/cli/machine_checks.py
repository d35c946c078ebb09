"""The checks of `skidway doctor` that need no broker: versions, clock, descriptors, disk, port.

They look at this machine as `skidway serve` would use it with the same settings. The only thing they write is a probe
file of a few hundred KiB in the data directory (or in the directory where it would be created), which is removed at
once; the probe stops after about a second.
"""

import os
import platform
import re
import shutil
import socket
import stat
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from skidway import __version__
from skidway.blocking_client.addresses import Address
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError, ConnectionLost, Unreachable
from skidway.broker.listeners import ListenerSpec
from skidway.cli.findings import Findings
from skidway.cli.output import count_of, quantity, size
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.server import descriptors
from skidway.server.config import Settings

FREE_SHARE_MIN = 10
"""Warn when less than this fraction of the disk is free."""
FREE_BYTES_MIN = 1 << 30
FULL_SHARE = 50
"""Below this fraction a broker treats its disk as full (`broker.partitions.room`)."""
DESCRIPTORS_MIN = 256
DESCRIPTORS_FEW = 4_096
SYNCS_MAX = 50
SYNC_BYTES = 4096
SYNC_PROBE_S = 1.0
SLOW_SYNC_MS = 20.0
CLOCK_DRIFT_MS = 500
EARLIEST_S = 1_735_689_600
"""2025-01-01: a wall clock before it was never set."""
PORT_ANSWER_MS = 2_000

UNSAFE_FILESYSTEMS = {
    "tmpfs": "keeps files in memory: a reboot deletes all messages",
    "ramfs": "keeps files in memory: a reboot deletes all messages",
    "overlay": "is a container's own layer: removing the container deletes all messages",
    "nfs": "is a network file system: its locks and fsync are not reliable enough for a broker",
    "nfs4": "is a network file system: its locks and fsync are not reliable enough for a broker",
    "cifs": "is a network file system: its locks and fsync are not reliable enough for a broker",
    "smb3": "is a network file system: its locks and fsync are not reliable enough for a broker",
    "9p": "is a shared folder: its locks and fsync are not reliable enough for a broker",
    "fuse.sshfs": "is a network file system: its locks and fsync are not reliable enough for a broker",
}
OTHER_DISK = "choose a --data-dir on a local disk (ext4 or xfs), or a volume that outlives the container"


# --- versions ---


def check_versions(found: Findings) -> None:
    python = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.flags.optimize:
        todo = "start Python without -O and unset PYTHONOPTIMIZE; a broker refuses to run without its assertions"
        found.fail("python", f"{python}, with assertions switched off", todo)
    else:
        found.ok("python", python)
    found.ok("skidway", __version__)
    _check_dependencies(found)
    _check_spark(found)


def _check_dependencies(found: Findings) -> None:
    try:
        needs = [need for need in metadata.requires("skidway") or [] if "extra ==" not in need]
    except metadata.PackageNotFoundError:
        found.ok("dependencies", "not checked: skidway runs from its sources, not from an installed package")
        return
    versions, wrong = [], []
    for need in needs:
        match = re.match(r"([\w.-]+)\s*(?:>=\s*([\d.]+))?", need)
        assert match is not None, need
        name, minimum = match[1], match[2]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name == "uvloop":
                todo = "pip install uvloop; brokers work without it, but serve fewer requests"
                found.warn("uvloop", "not installed", todo)
            else:
                wrong.append(f"{name} is not installed")
            continue
        versions.append(f"{name} {version}")
        if minimum is not None and _numbers(version) < _numbers(minimum):
            wrong.append(f"{name} is {version}, and skidway needs {minimum} or newer")
    if wrong:
        found.fail("dependencies", "; ".join(wrong), "pip install --upgrade skidway")
    else:
        found.ok("dependencies", ", ".join(versions))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _check_spark(found: Findings) -> None:
    """Optional: a broker needs neither Spark nor Java."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        found.ok("spark", "not installed, and only pipelines need it: pip install 'skidway[spark]'")
        return
    from skidway.spark import java

    there = java.find(os.environ)
    if there is not None:
        found.ok("spark", f"pyspark {version}, Java {there.version} in {there.home}")
    elif java.package_installed():
        found.ok("spark", f"pyspark {version}, Java from the package {java.PACKAGE}")
    else:
        todo = (
            f"install Java {java.JAVA_VERSION_MIN} or newer, or pip install {java.PACKAGE}; pipelines install it when "
        )
        found.warn("spark", f"pyspark {version}, but no Java {java.JAVA_VERSION_MIN} or newer", f"{todo}they first run")


# --- clock ---


class ClockWatch:
    """The wall clock beside the monotonic one, from the beginning of a run of the doctor to its end."""

    def __init__(self) -> None:
        self._began = _both_clocks()

    def check(self, found: Findings) -> None:
        wall, monotonic = _both_clocks()
        drift_ms = abs((wall - self._began[0]) - (monotonic - self._began[1])) * 1000
        shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))
        todo = "synchronise the clock: timedatectl set-ntp true, or run chronyd"
        if wall < EARLIEST_S:
            found.fail("clock", f"the wall clock says {shown}, which is in the past", todo)
        elif drift_ms > CLOCK_DRIFT_MS:
            found.warn("clock", f"the wall clock jumped by {quantity(drift_ms)} ms during this check", todo)
        else:
            found.ok("clock", f"{shown}, no jump during this check")


def _both_clocks() -> tuple[float, float]:
    """Read closely together: of several tries the quickest, as a busy machine may interrupt any."""
    tries = []
    for _ in range(5):
        before = time.monotonic()
        wall = time.time()
        after = time.monotonic()
        tries.append((after - before, wall, (before + after) / 2))
    _, wall, monotonic = min(tries)
    return wall, monotonic


# --- descriptors ---


def check_descriptors(found: Findings, limits: Limits) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    total = hard if hard >= 0 else sys.maxsize
    given = descriptors.share_out(limits, total).limits
    room = f"{count_of(given.connections_max, 'connection')} and {count_of(given.partitions_max, 'partition')}"
    files = "any number of files" if total == sys.maxsize else f"{quantity(total)} files"
    text = f"a broker may open {files}, enough for {room}"
    todo = "raise the hard limit: ulimit -Hn 100000 before the start, or LimitNOFILE=100000 in the systemd unit"
    lowered = [
        f"limits.{name} is {quantity(getattr(limits, name))}"
        for name in ("connections_max", "partitions_max")
        if getattr(given, name) < getattr(limits, name) != getattr(DEFAULT_LIMITS, name)
    ]
    if total < DESCRIPTORS_MIN:
        found.fail("descriptors", text, todo)
    elif lowered:
        found.warn("descriptors", f"{text}, but {' and '.join(lowered)}", todo)
    elif total < DESCRIPTORS_FEW:
        found.warn("descriptors", text, todo)
    else:
        found.ok("descriptors", text)


# --- disk ---


def check_disk(found: Findings, data_dir: str) -> None:
    wanted = Path(data_dir).absolute()
    place = next(path for path in (wanted, *wanted.parents) if path.exists())
    if not place.is_dir():
        found.fail("data directory", f"{place} is a file, not a directory", "choose another --data-dir")
        return
    exists = place == wanted
    try:
        times_ms = _time_syncs(place)
    except OSError as error:
        doing = f"write to {place}" if exists else f"create {wanted} in {place}"
        todo = f"give this user the directory (chown {os.geteuid()} {place}), or choose another --data-dir"
        found.fail("data directory", f"this user cannot {doing}: {(error.strerror or str(error)).lower()}", todo)
        return
    if exists and place.stat().st_mode & stat.S_IWOTH:
        text = f"every user of this machine can write to {wanted}"
        found.warn("data directory", text, f"chmod o-w {wanted}")
    else:
        found.ok("data directory", f"{wanted}{'' if exists else ' does not exist yet; skidway serve creates it'}")
    _check_space(found, place)
    _check_filesystem(found, place)
    _check_syncs(found, times_ms)


def _check_space(found: Findings, place: Path) -> None:
    usage = shutil.disk_usage(place)
    text = f"{size(usage.free)} of {size(usage.total)} free"
    todo = "free some space, choose a larger disk, or lower retention.ms and retention.bytes of large topics"
    if usage.free < max(1 << 20, usage.total // FULL_SHARE):
        found.fail("disk space", f"{text}: a broker rejects messages when its disk is full", todo)
    elif usage.free < max(FREE_BYTES_MIN, usage.total // FREE_SHARE_MIN):
        found.warn("disk space", text, todo)
    else:
        found.ok("disk space", text)


def _check_filesystem(found: Findings, place: Path) -> None:
    kind = filesystem_of(place)
    if kind is None:
        found.ok("filesystem", "unknown: this system has no /proc/self/mountinfo")
    elif kind in UNSAFE_FILESYSTEMS:
        found.warn("filesystem", f"{kind} {UNSAFE_FILESYSTEMS[kind]}", OTHER_DISK)
    else:
        found.ok("filesystem", kind)


def filesystem_of(place: Path) -> str | None:
    """The type of the mount that holds a path; None where the system does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real = os.path.realpath(place)
    best: tuple[int, str] | None = None
    for line in lines:
        fields, _, after = line.partition(" - ")
        mounted = fields.split()[4].replace("\\040", " ")
        inside = mounted == "/" or real == mounted or real.startswith(f"{mounted}/")
        # A later mount on the same path hides the earlier one.
        if inside and after and (best is None or len(mounted) >= best[0]):
            best = (len(mounted), after.split()[0])
    return best[1] if best is not None else None


def _check_syncs(found: Findings, times_ms: list[float]) -> None:
    median, worst = statistics.median(times_ms), max(times_ms)
    text = f"{median:.2f} ms median, {worst:.2f} ms at most, of {len(times_ms)} writes of 4 KiB"
    if median > SLOW_SYNC_MS:
        todo = "expect this time for every acks=all with flush=sync; use a faster disk, or flush=os with three replicas"
        found.warn("fsync", text, todo)
    else:
        found.ok("fsync", text)


def _time_syncs(place: Path) -> list[float]:
    sync = getattr(os, "fdatasync", os.fsync)
    times_ms: list[float] = []
    began = time.monotonic()
    with tempfile.TemporaryFile(dir=place, prefix=".skidway-doctor-") as file:
        for number in range(SYNCS_MAX):
            before = time.perf_counter()
            os.pwrite(file.fileno(), bytes(SYNC_BYTES), number * SYNC_BYTES)
            sync(file.fileno())
            times_ms.append((time.perf_counter() - before) * 1000)
            if time.monotonic() - began > SYNC_PROBE_S:
                break
    return times_ms


# --- port ---

STOP_IT = "ss -ltnp shows which process listens; stop it, or start the broker with another --listen HOST:PORT"


def check_ports(found: Findings, settings: Settings) -> Address | None:
    """Each is free, taken by a broker, or taken by something else. Where a broker answers, which is as good as free."""
    answering = [at for spec in settings.listener_list().kafka if (at := _check_port(found, spec)) is not None]
    return answering[0] if answering else None


def _check_port(found: Findings, listener: ListenerSpec) -> Address | None:
    from skidway.server.listener import bind
    from skidway.server.port_in_use import holder

    address = listener.bind
    if address.port == 0:
        found.ok("port", f"{address} means any free port")
        return None
    at = _local_address(listener)
    try:
        with Connection(
            at, client_id="skidway-cli", connect_timeout_ms=PORT_ANSWER_MS, reply_timeout_ms=PORT_ANSWER_MS
        ):
            found.ok("port", f"{address} is in use by a Kafka broker that answers")
        return at
    except ConnectionLost:
        text = (
            f"{address} is in use {holder(at.port)}, which closes the connection: it is not a broker, or not ready yet"
        )
        found.fail("port", text, STOP_IT)
    except Unreachable:
        try:
            bind(address.host, address.port).close()
            found.ok("port", f"{address} is free")
        except OSError as error:
            found.fail("port", error.strerror or str(error), STOP_IT)
    except ClientError:
        text = f"{address} is in use {holder(at.port)}, which does not speak Kafka's protocol"
        found.fail("port", text, STOP_IT)
    return None


def _local_address(listener: ListenerSpec) -> Address:
    """Where this machine reaches it."""
    address = listener.bind
    host = address.host
    if address.is_wildcard:
        host = "::1" if ":" in host else "127.0.0.1"
    return Address(host, address.port)


def check_advertised_setting(found: Findings, settings: Settings) -> None:
    """What a broker with these settings would tell clients; for one that runs `broker_checks` asks itself."""
    from skidway.server.advertised import problem_of

    for listener in settings.listener_list().kafka:
        address, chosen = listener.advertised, settings.chose_address_of(listener.name)
        problem = problem_of(address, chosen=chosen) if chosen or listener.bind.is_wildcard else None
        if problem is None:
            found.ok("advertised", f"clients will be told to connect to {address}")
        else:
            text, _, todo = problem.rpartition(": ")
            found.warn("advertised", text, todo)


def is_local(host: str) -> bool:
    """Whether a host name or address means this machine's loopback interface alone."""
    import ipaddress

    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)
