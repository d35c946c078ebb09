"""What this machine can do at best, measured beside the brokers: the honest denominator of every figure.

- receive: one process takes batches from a loopback connection, checks their CRC and appends them to a file;
- send: one process hands a file in the page cache to a loopback connection with sendfile, once with the send buffer
  that the broker has by default and once with the buffer the kernel chooses: the better one is the limit;
- sync: fdatasync after each append of 4 KB, alone.
What answering the fetch load costs at least is measured by floor.py.

Run in processes of their own (`python -m bench.machine receive|send …`), so that their CPU time is theirs alone.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import crc32c

from skidway.limits import DEFAULT_SEND_BUFFER_BYTES

FILE_BYTES = 256 << 20
SEND_BUFFERS = (DEFAULT_SEND_BUFFER_BYTES, -1)


@dataclass(slots=True)
class Limit:
    mb_per_s: float
    cpu_s_per_gb: float


def warm(gigabytes: float = 1.0) -> None:
    """First use of memory is dear on virtual machines: let the page cache touch it before anything is measured.

    Many hosts take freed memory back within seconds, so this comes right before each load that writes.
    """
    with tempfile.TemporaryFile() as file:
        block = bytes(1 << 20)
        for _ in range(int(gigabytes * 1024)):
            os.write(file.fileno(), block)


def receive_limit(batch_bytes: int, seconds: float) -> Limit:
    return _child("receive", batch_bytes, seconds)


def send_limit(chunk_bytes: int, seconds: float) -> Limit:
    return best([_child("send", chunk_bytes, seconds / 2, size) for size in SEND_BUFFERS])


def best(limits: list[Limit]) -> Limit:
    return Limit(max(one.mb_per_s for one in limits), min(one.cpu_s_per_gb for one in limits))


def sync_latencies(seconds: float, append_bytes: int = 4096) -> list[float]:
    """Milliseconds of each append + fdatasync, in the order they came."""
    taken: list[float] = []
    block = os.urandom(append_bytes)
    os.sync()
    with tempfile.NamedTemporaryFile(prefix="bench-sync-") as file:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - start) * 1e3)
    return taken


def unsynced_folder() -> bool:
    """Whether temporary files live in memory, where a sync means nothing."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", tempfile.gettempdir()], capture_output=True, text=True)
    return kind.stdout.strip() in ("tmpfs", "ramfs")


def _child(role: str, size: int, seconds: float, send_buffer_bytes: int = -1) -> Limit:
    """Run the measured end in a process of its own and be the other end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "bench.machine", role, str(listener.getsockname()[1]), str(size)]
        command.append(str(send_buffer_bytes))
        root = Path(__file__).resolve().parents[1]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as child:
            peer, _ = listener.accept()
            with peer:
                (_feed if role == "receive" else _drain)(peer, seconds)
            out, _ = child.communicate(timeout=30)
    result = json.loads(out)
    gigabytes = result["bytes"] / 1e9
    return Limit(result["bytes"] / 1e6 / result["elapsed"], result["cpu"] / gigabytes)


def _feed(peer: socket.socket, seconds: float) -> None:
    block = bytes(1 << 20)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.sendall(block)


def _drain(peer: socket.socket, seconds: float) -> None:
    # As the load generator does it: the kernel throws the bytes away, no copy.
    end = time.monotonic() + seconds
    sink = bytearray(1 << 20)
    while time.monotonic() < end and peer.recv_into(sink, 0, socket.MSG_TRUNC):
        pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _receive(peer: socket.socket, batch_bytes: int) -> int:
    buffer = bytearray(batch_bytes)
    total = written = 0
    with tempfile.TemporaryFile() as file:
        while peer.recv_into(buffer, 0, socket.MSG_WAITALL) == batch_bytes:
            crc32c.crc32c(buffer)
            os.write(file.fileno(), buffer)
            total += batch_bytes
            written += batch_bytes
            if written >= 4 * FILE_BYTES:
                os.ftruncate(file.fileno(), 0)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                written = 0
    return total


def _send(peer: socket.socket, chunk_bytes: int, file: int) -> int:
    total = at = 0
    try:
        while True:
            end = min(FILE_BYTES, at + chunk_bytes)
            while at < end:
                sent = os.sendfile(peer.fileno(), file, at, end - at)
                at += sent
                total += sent
            at %= FILE_BYTES
    except (BrokenPipeError, ConnectionResetError):
        return total


def main(role: str, port: int, size: int, send_buffer_bytes: int) -> None:
    with tempfile.TemporaryFile() as file:
        if role == "send":
            for _ in range(FILE_BYTES >> 20):
                os.write(file.fileno(), os.urandom(1 << 20))
        with socket.create_connection(("127.0.0.1", port)) as peer:
            if send_buffer_bytes > 0:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            before, start = _cpu(), time.monotonic()
            total = _receive(peer, size) if role == "receive" else _send(peer, size, file.fileno())
            print(json.dumps({"bytes": total, "elapsed": time.monotonic() - start, "cpu": _cpu() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
