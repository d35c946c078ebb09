"""`python -m bench.http_load [--seconds S] [--only NAME] [--flush sync|os]`: requests per second of the HTTP API.

Clients are raw connections of one process with prepared requests, one under way on each: a client library would be the
limit. Every answer is read to its end and must be 200. Beside requests and records per second stands what the broker's
process took for one request, of CPU time, which says more than the rate where client and broker share cores.
"""

import argparse
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from bench.frames import BenchError
from bench.subject import cpu_seconds
from skidway.testing import Broker

TOPIC = "bench-http"
RECORD_BYTES = 1_000
CONNECTIONS = (1, 8, 64)
WARM_UP_SHARE = 0.2
READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    request: bytes
    records: int
    """In one request or its answer."""


@dataclass(frozen=True, slots=True)
class Figures:
    requests_per_s: float
    records_per_s: float
    cpu_us: float
    """Of the broker, for one request."""


def post(path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    return f"{head}\r\n\r\n".encode() + content


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: identity\r\n\r\n".encode()


def workloads() -> list[Workload]:
    def produce(count: int) -> bytes:
        records = [{"key": f"key-{number}", "value": "x" * RECORD_BYTES} for number in range(count)]
        return post(f"/v1/topics/{TOPIC}/produce", {"records": records})

    def fetch(count: int) -> bytes:
        return get(f"/v1/topics/{TOPIC}/records?partition=0&offset=0&max={count}&maxBytes={count * RECORD_BYTES}")

    return [
        Workload("livez", get("/livez"), 0),
        Workload("produce-1", produce(1), 1),
        Workload("produce-10", produce(10), 10),
        Workload("produce-100", produce(100), 100),
        Workload("fetch-1", fetch(1), 1),
        Workload("fetch-10", fetch(10), 10),
    ]


class Client:
    """One connection with one request under way."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._left = -1
        self._head = b""

    def send(self) -> None:
        self._left, self._head = -1, b""
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Whether the answer is whole."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BenchError("the broker closed the connection")
        if self._left < 0:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return False
            if not head.startswith(b"HTTP/1.1 200 "):
                raise BenchError(f"the broker answered {self._head[:300]!r}")
            self._left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(body)
        else:
            self._left -= len(data)
        return not self._left


def run_for(clients: list[Client], seconds: float) -> tuple[int, float]:
    """How many requests were answered, and in what time."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        answered, begun = 0, time.perf_counter()
        until, under_way = begun + seconds, len(clients)
        while under_way:
            for key, _ in selector.select(30):
                if not key.data.receive():
                    continue
                answered += 1
                if time.perf_counter() < until:
                    key.data.send()
                else:
                    under_way -= 1
        return answered, time.perf_counter() - begun


def measure(broker: Broker, workload: Workload, connections: int, seconds: float) -> Figures:
    where = urlsplit(broker.http)
    address = where.hostname or "", where.port or 0
    clients = [Client(address, workload.request) for _ in range(connections)]
    try:
        run_for(clients, seconds * WARM_UP_SHARE)
        cpu = cpu_seconds(broker.pid)
        answered, took = run_for(clients, seconds)
        cpu = cpu_seconds(broker.pid) - cpu
    finally:
        for client in clients:
            client.socket.close()
    rate = answered / took
    return Figures(rate, rate * workload.records, cpu / answered * 1e6)


def suite(broker: Broker, chosen: list[Workload], seconds: float, show: Callable[[str, int, Figures], None]) -> None:
    filling = Client((urlsplit(broker.http).hostname or "", urlsplit(broker.http).port or 0), workloads()[2].request)
    run_for([filling], 0.1)
    filling.socket.close()
    for workload in chosen:
        for connections in CONNECTIONS:
            show(workload.name, connections, measure(broker, workload, connections, seconds))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.http_load", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    parser.add_argument("--only", help="one of " + ", ".join(each.name for each in workloads()))
    parser.add_argument("--flush", choices=("sync", "os"), default="sync")
    options = parser.parse_args()
    chosen = [each for each in workloads() if options.only in (None, each.name)]
    if not chosen:
        parser.error(f"there is no workload {options.only}")
    print(f"{'workload':<12} {'clients':>7} {'requests/s':>11} {'records/s':>11} {'CPU µs/request':>15}")

    def show(name: str, connections: int, found: Figures) -> None:
        rates = f"{found.requests_per_s:>11,.0f} {found.records_per_s:>11,.0f}"
        print(f"{name:<12} {connections:>7} {rates} {found.cpu_us:>15,.0f}", flush=True)

    with Broker(http="127.0.0.1:0", flush=options.flush) as broker:
        suite(broker, chosen, options.seconds, show)
    return 0


if __name__ == "__main__":
    sys.exit(main())
