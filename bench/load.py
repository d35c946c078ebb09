"""The load generator: prepared frames over raw sockets, so that the broker and not the client is the limit.

Three loads: `produce_load` (as much as is taken, pipelined), `fetch_load` (as much as is given) and `latency_load`
(a fixed rate; every latency counts from the moment the message was due, so a stalled broker cannot hide its stall).
Every reply is checked; any error raises BenchError and the run counts for nothing.
The hot loops are C (generator.c, compiled with gcc into .cache at first use); without gcc the same loops run in
Python (slow_load.py), and `ENGINE` says so: the client is then the limit of the fast loads.
"""

import array
import ctypes
import hashlib
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import errorcode
from functools import cache
from pathlib import Path

from bench import slow_load
from bench.frames import BenchError
from bench.subject import CACHE

FAILURES = [
    "ok",
    "closed the connection",
    "error code",
    "wrong correlation id",
    "no reply in 20 s",
    "malformed",
    "errno",
]


class _Produce(ctypes.Structure):
    _fields_ = (
        ("connections", ctypes.c_int32),
        ("depth", ctypes.c_int32),
        ("fds", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("frame_bytes", ctypes.c_void_p),
        ("error_at", ctypes.c_uint32),
        ("detail", ctypes.c_int32),
        ("seconds", ctypes.c_double),
        ("elapsed", ctypes.c_double),
        ("acked", ctypes.c_uint64),
    )


class _Fetch(ctypes.Structure):
    _fields_ = (
        ("connections", ctypes.c_int32),
        ("detail", ctypes.c_int32),
        ("fds", ctypes.c_void_p),
        ("frames", ctypes.c_void_p),
        ("frame_bytes", ctypes.c_void_p),
        ("end_offsets", ctypes.c_void_p),
        ("offset_at", ctypes.c_uint32),
        ("error_at", ctypes.c_uint32),
        ("records_at", ctypes.c_uint32),
        ("batch_bytes", ctypes.c_uint32),
        ("batch_records", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("seconds", ctypes.c_double),
        ("elapsed", ctypes.c_double),
        ("replies", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("records", ctypes.c_uint64),
    )


class _Latency(ctypes.Structure):
    _fields_ = (
        ("connections", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("fds", ctypes.c_void_p),
        ("frames", ctypes.c_void_p),
        ("frame_bytes", ctypes.c_void_p),
        ("error_at", ctypes.c_uint32),
        ("detail", ctypes.c_int32),
        ("rate", ctypes.c_double),
        ("latencies", ctypes.c_void_p),
        ("lags", ctypes.c_void_p),
    )


@dataclass(slots=True)
class Acked:
    requests: int
    elapsed_s: float


@dataclass(slots=True)
class Fetched:
    replies: int
    bytes: int
    records: int
    elapsed_s: float


@dataclass(slots=True)
class FetchPlan:
    """What every connection fetches: partition i of the topic, which holds equal batches up to end_offsets[i]."""

    frames: list[bytearray]
    end_offsets: list[int]
    offset_at: int
    error_at: int
    records_at: int
    batch_bytes: int
    batch_records: int


@dataclass(slots=True)
class Latencies:
    """Sorted, in milliseconds; lag is how late the generator itself was."""

    reply_ms: list[float]
    lag_ms: list[float]

    def percentile(self, percent: float) -> float:
        return nearest_rank(self.reply_ms, percent)


def nearest_rank(ordered: list[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@cache
def native() -> ctypes.CDLL | None:
    """The compiled loops, or None where there is no C compiler."""
    if os.environ.get("BENCH_ENGINE") == "python" or shutil.which("gcc") is None:
        return None
    source = Path(__file__).with_name("generator.c")
    name = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    library = CACHE / "bench" / f"generator-{name}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(partial), str(source)], check=True)
        partial.rename(library)
    return ctypes.CDLL(str(library))


def engine() -> str:
    return "C" if native() else "Python (no gcc: the client may be the limit)"


Addresses = str | list[str]
"""Of one broker for all connections, or of the broker of each."""


@contextmanager
def connections(address: Addresses, count: int) -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        for each in [address] * count if isinstance(address, str) else address:
            host, _, port = each.rpartition(":")
            one = socket.create_connection((host, int(port)), 10)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            opened.append(one)
        yield opened
    finally:
        for one in opened:
            one.close()


class _Arguments:
    """C arrays built from Python lists, kept alive for the length of a call."""

    def __init__(self, sockets: list[socket.socket], frames: list[bytearray]) -> None:
        self.count = len(sockets)
        self._fds = array.array("i", [one.fileno() for one in sockets])
        self._views = [(ctypes.c_char * len(one)).from_buffer(one) for one in frames]
        self._frames = (ctypes.c_void_p * len(frames))(*[ctypes.addressof(view) for view in self._views])
        self.fds = self._fds.buffer_info()[0]
        self.frames = ctypes.addressof(self._frames)
        self._kept: list[object] = []

    def numbers(self, code: str, values: list[int] | list[float]) -> int:
        kept: array.array[int] | array.array[float] = array.array(code, values)
        self._kept.append(kept)
        return kept.buffer_info()[0]


def _check(failure: int, detail: int) -> None:
    if failure:
        more = {2: f" {detail}", 6: f" {errorcode.get(detail, detail)}"}.get(failure, "")
        raise BenchError(f"load stopped: {FAILURES[failure]}{more}")


def block(frame: bytes, depth: int) -> bytearray:
    """`depth` copies of a frame with correlation ids 0, 1, …"""
    out = bytearray(frame * depth)
    for index in range(depth):
        struct.pack_into(">i", out, index * len(frame) + 8, index)
    return out


def produce_load(address: Addresses, frames: list[bytes], *, error_at: int, depth: int, seconds: float) -> Acked:
    """One connection per frame, each sending its frame again and again with up to `depth` unanswered."""
    library = native()
    blocks = [block(frame, depth) for frame in frames]
    with connections(address, len(frames)) as sockets:
        if library is None:
            return Acked(*slow_load.produce(sockets, blocks, depth, error_at, seconds))
        call = _Arguments(sockets, blocks)
        load = _Produce(connections=call.count, depth=depth, fds=call.fds, blocks=call.frames)
        load.frame_bytes = call.numbers("Q", [len(frame) for frame in frames])
        load.error_at, load.seconds = error_at, seconds
        _check(library.produce_load(ctypes.byref(load)), load.detail)
        return Acked(load.acked, load.elapsed)


def fetch_load(address: str, plan: FetchPlan, *, seconds: float) -> Fetched:
    """One connection per frame, one fetch under way on each, over its partition from the start again and again."""
    library = native()
    with connections(address, len(plan.frames)) as sockets:
        if library is None:
            return Fetched(*slow_load.fetch(sockets, plan, seconds))
        call = _Arguments(sockets, plan.frames)
        load = _Fetch(connections=call.count, fds=call.fds, frames=call.frames, seconds=seconds)
        load.frame_bytes = call.numbers("Q", [len(frame) for frame in plan.frames])
        load.end_offsets = call.numbers("q", plan.end_offsets)
        load.offset_at, load.error_at, load.records_at = plan.offset_at, plan.error_at, plan.records_at
        load.batch_bytes, load.batch_records = plan.batch_bytes, plan.batch_records
        _check(library.fetch_load(ctypes.byref(load)), load.detail)
        return Fetched(load.replies, load.bytes, load.records, load.elapsed)


def latency_load(address: Addresses, frames: list[bytes], *, error_at: int, rate: float, count: int) -> Latencies:
    """`count` requests at a fixed rate, one after the other over the connections, whether or not replies came."""
    library = native()
    latencies, lags = array.array("d", bytes(8 * count)), array.array("d", bytes(8 * count))
    own = [bytearray(frame) for frame in frames]
    with connections(address, len(frames)) as sockets:
        if library is None:
            slow_load.latency(sockets, own, error_at, rate, latencies, lags)
        else:
            call = _Arguments(sockets, own)
            load = _Latency(connections=call.count, count=count, fds=call.fds, frames=call.frames, rate=rate)
            load.frame_bytes = call.numbers("Q", [len(frame) for frame in frames])
            load.error_at, load.latencies, load.lags = error_at, latencies.buffer_info()[0], lags.buffer_info()[0]
            _check(library.latency_load(ctypes.byref(load)), load.detail)
    return Latencies(sorted(one * 1e3 for one in latencies), sorted(one * 1e3 for one in lags))
