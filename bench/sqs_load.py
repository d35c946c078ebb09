"""`python -m bench.sqs_load [--seconds S] [--only NAME] [--rounds N] [--elasticmq]`: the SQS door under load.

A life of a message is send, receive, delete. Clients are raw connections of one process that speak JSON 1.0, one
request under way on each: an SDK would be the limit. Every answer must be 200, and a figure counts messages that were
deleted. With `--elasticmq` the same loads run in turns with ElasticMQ, in memory (its default) and with its messages in
a file; Skidway stores every message on disk before it answers (`flush=sync`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import selectors
import socket
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from bench.elasticmq import ElasticMQ
from bench.frames import BenchError
from bench.load import nearest_rank
from bench.subject import Unavailable, cpu_seconds
from skidway.testing import Broker

BODY = "x" * 1_000
TEN = 10
READ_BYTES = 1 << 18
WARM_UP_SHARE = 0.25
NUMBERS_APART = 1_000_000_157
"""Between the first messages of two connections: so that 64 of them are spread over 10,000 groups, and do not send to
the same ten at the same time."""
Request = tuple[str, dict[str, Any]]


class Target(Protocol):
    """Where the door is."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def pid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    connections: int
    is_fifo: bool
    """Whether its queue is."""
    batch: int
    groups: int = 1

    @property
    def queue(self) -> str:
        return f"bench-{self.name}" + (".fifo" if self.is_fifo else "")

    @property
    def deletes(self) -> bool:
        return not self.name.startswith("send")


LOADS = [
    Load("lives-10", 64, is_fifo=False, batch=TEN),
    Load("lives-1", 64, is_fifo=False, batch=1),
    Load("send-1", 64, is_fifo=False, batch=1),
    Load("fifo-10k-groups", 64, is_fifo=True, batch=TEN, groups=10_000),
    Load("fifo-1-group", 4, is_fifo=True, batch=TEN),
]


@dataclass(frozen=True, slots=True)
class Figures:
    messages_per_s: float
    requests_per_s: float
    p99_ms: float
    """Of a send."""
    cpu_us: float
    """Of the process that serves, for one message."""


class Client:
    """One connection, and what it does over and over."""

    def __init__(self, target: Target, load: Load, url: str, number: int) -> None:
        self.socket = socket.create_connection(target.address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._load = load
        self._url = url
        self._numbers = itertools.count(number * NUMBERS_APART)
        self._steps = self._life()
        self._received = bytearray()
        self._heard: Any = None
        self._sent_at = 0.0
        self._is_send = False
        self.answered = self.done = 0
        self.send_ms: list[float] = []

    def _life(self) -> Generator[Request, dict[str, Any], None]:
        load = self._load
        while True:
            entries = [self._message() for _ in range(load.batch)]
            if load.batch == 1:
                yield "SendMessage", entries[0]
            else:
                numbered = [{"Id": str(at), **entry} for at, entry in enumerate(entries)]
                yield "SendMessageBatch", {"Entries": numbered}
            if not load.deletes:
                self.done += load.batch
                continue
            answer = yield "ReceiveMessage", {"MaxNumberOfMessages": load.batch, "VisibilityTimeout": 60}
            handles = [message["ReceiptHandle"] for message in answer.get("Messages") or []]
            if len(handles) == 1:
                yield "DeleteMessage", {"ReceiptHandle": handles[0]}
            elif handles:
                entries = [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(handles)]
                answer = yield "DeleteMessageBatch", {"Entries": entries}
                if answer.get("Failed"):
                    raise BenchError(f"a deletion failed: {answer['Failed'][0]}")
            self.done += len(handles)

    def _message(self) -> dict[str, Any]:
        if not self._load.is_fifo:
            return {"MessageBody": BODY}
        number = next(self._numbers)
        group = f"group-{number % self._load.groups}"
        return {"MessageBody": BODY, "MessageGroupId": group, "MessageDeduplicationId": str(number)}

    def go_on(self) -> None:
        """After what it heard last, if anything."""
        action, body = self._steps.send(self._heard)
        self._is_send = action.startswith("Send")
        self._sent_at = time.perf_counter()
        self.socket.sendall(request_of(action, {"QueueUrl": self._url, **body}))

    def receive(self) -> Any:
        """The answer, once it is whole."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise BenchError("the connection was closed")
        self._received += data
        head, end, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not end:
            return None
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return None
        if not head.startswith(b"HTTP/1.1 200 "):
            raise BenchError(f"answered {bytes(self._received[:400])!r}")
        self._received.clear()
        if self._is_send:
            self.send_ms.append((time.perf_counter() - self._sent_at) * 1_000)
        self.answered += 1
        self._heard = json.loads(rest or b"{}")
        return self._heard


def request_of(action: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = [
        "POST / HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/x-amz-json-1.0",
        f"X-Amz-Target: AmazonSQS.{action}",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content


def ask(target: Target, action: str, body: dict[str, Any]) -> dict[str, Any]:
    """One question on a connection of its own."""
    client = Client(target, LOADS[0], "", 0)
    try:
        client.socket.sendall(request_of(action, body))
        while (answer := client.receive()) is None:
            pass
        found: dict[str, Any] = answer
        return found
    finally:
        client.socket.close()


def make_queue(target: Target, load: Load) -> str:
    attributes = {"FifoQueue": "true"} if load.is_fifo else {}
    url: str = ask(target, "CreateQueue", {"QueueName": load.queue, "Attributes": attributes})["QueueUrl"]
    return url


def run_for(clients: list[Client], seconds: float) -> float:
    """In what time; each goes on where it was."""
    with selectors.DefaultSelector() as selector:
        begun = time.perf_counter()
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.go_on()
        until, under_way = begun + seconds, len(clients)
        while under_way:
            ready = selector.select(30)
            if not ready:
                raise BenchError("no answer for 30 s")
            for key, _ in ready:
                client = key.data
                if client.receive() is None:
                    continue
                if time.perf_counter() < until:
                    client.go_on()
                else:
                    under_way -= 1
        return time.perf_counter() - begun


def measure(target: Target, load: Load, seconds: float) -> Figures:
    url = make_queue(target, load)
    clients = [Client(target, load, url, number) for number in range(load.connections)]
    try:
        run_for(clients, seconds * WARM_UP_SHARE)
        for client in clients:
            client.answered = client.done = 0
            client.send_ms.clear()
        cpu = cpu_seconds(target.pid)
        took = run_for(clients, seconds)
        while not any(client.done for client in clients):
            took += run_for(clients, seconds)
        cpu = cpu_seconds(target.pid) - cpu
    finally:
        for client in clients:
            client.socket.close()
    done = sum(client.done for client in clients)
    sends = sorted(itertools.chain.from_iterable(client.send_ms for client in clients))
    answered = sum(client.answered for client in clients)
    return Figures(done / took, answered / took, nearest_rank(sends, 99), cpu / done * 1e6)


@dataclass
class Skidway:
    """A broker with its HTTP listener."""

    broker: Broker
    name: str = "skidway"

    @property
    def address(self) -> tuple[str, int]:
        where = urlsplit(self.broker.http)
        return where.hostname or "", where.port or 0

    @property
    def pid(self) -> int:
        return self.broker.pid


def targets(stack: contextlib.ExitStack, with_elasticmq: bool, say: Callable[[str], None]) -> list[Target]:
    found: list[Target] = [Skidway(stack.enter_context(Broker(http="127.0.0.1:0", flush="sync")))]
    for is_durable in (False, True) if with_elasticmq else ():
        try:
            found.append(stack.enter_context(ElasticMQ(is_durable=is_durable)))
        except (Unavailable, BenchError) as reason:
            say(str(reason))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sqs_load", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many, in turns")
    parser.add_argument("--only", help="one of " + ", ".join(load.name for load in LOADS))
    parser.add_argument("--elasticmq", action="store_true", help="beside ElasticMQ (needs Java and Maven)")
    options = parser.parse_args()
    chosen = [load for load in LOADS if options.only in (None, load.name)]
    if not chosen:
        parser.error(f"there is no load {options.only}")
    print(
        f"{'load':<16} {'server':<21} {'messages/s':>10} {'requests/s':>10} {'send p99 ms':>11} {'CPU µs/message':>14}"
    )
    with contextlib.ExitStack() as stack:
        subjects = targets(stack, options.elasticmq, lambda text: print(text, file=sys.stderr))
        for load in chosen:
            taken: dict[str, list[Figures]] = defaultdict(list)
            for _ in range(options.rounds):
                for subject in subjects:
                    try:
                        figures = measure(subject, load, options.seconds)
                    except BenchError as error:
                        print(f"{load.name:<16} {subject.name:<21} {error}", flush=True)
                    else:
                        taken[subject.name].append(figures)
            for name, rounds in taken.items():
                rates = [statistics.median(each.messages_per_s for each in rounds)]
                rates.append(statistics.median(each.requests_per_s for each in rounds))
                p99 = statistics.median(each.p99_ms for each in rounds)
                cpu = statistics.median(each.cpu_us for each in rounds)
                told = f"{rates[0]:>10,.0f} {rates[1]:>10,.0f} {p99:>11,.1f} {cpu:>14,.0f}"
                print(f"{load.name:<16} {name:<21} {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
