"""What every attack needs: frames of any kind, a broker under attack, and a good client that must not notice.

The good client sits in a process of its own, so that the attackers' work is not counted as the broker's delay.
"""

import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from skidway.records.record import Record, build_batch
from skidway.testing import Broker
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api

MIB = 1024 * 1024
ANSWER_TIMEOUT_S = 60.0
LATENCY_S_MAX = 45.0
PROBE_PAUSE_S = 0.005
REPLY_S_MAX = 0.02
"""Most mutants are answered or hung up on at once; the others are not worth waiting for."""
GOOD_TOPIC = "good"
UNEXPECTED = re.compile(
    r"^.*(?:Traceback|internal error while|failed at the end of a turn|failed unexpectedly"
    r"|maintenance failed).*$",
    re.MULTILINE,
)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
INIT_PRODUCER_ID, DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS = 22, 32, 61


def message(key: int, **fields: Any) -> Message:
    made: Message = api(key).request.message(**fields)
    return made


def body_of(key: int, version: int, request: Message) -> bytes:
    parts: list[Any] = []
    api(key).request.encoder(version)(request, parts)
    return b"".join(map(bytes, parts))


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def raw_request(key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    return framed(write_request_header(key, version, correlation_id, "attacker") + body)


def request(key: int, version: int, correlation_id: int = 1, **fields: Any) -> bytes:
    return raw_request(key, version, body_of(key, version, message(key, **fields)), correlation_id)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part_of(key: int, name: str) -> Any:
    """A struct class of the request's module, by its name."""
    module = __import__(api(key).request.message.__module__, fromlist=[name])
    return getattr(module, name)


def produce_frame(topic: str, batch: bytes, *, acks: int = 1, version: int = 8, partition: int = 0) -> bytes:
    data = part_of(PRODUCE, "PartitionProduceData")(partition, batch)
    return request(
        PRODUCE,
        version,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[part_of(PRODUCE, "TopicProduceData")(topic, partition_data=[data])],
    )


def fetch_frame(topic: str, partitions: Sequence[int], *, version: int = 11, offset: int = 0, **fields: Any) -> bytes:
    wanted = [
        part_of(FETCH, "FetchPartition")(index, fetch_offset=offset, partition_max_bytes=MIB) for index in partitions
    ]
    return request(
        FETCH,
        version,
        topics=[part_of(FETCH, "FetchTopic")(topic, partitions=wanted)],
        **{"max_bytes": MIB, "max_wait_ms": 0, **fields},
    )


def batch_of(*values: bytes, **options: Any) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(build_batch([Record(0, now_ms, None, value) for value in values], **options))


class Address(NamedTuple):
    host: str
    port: int


class Peer:
    """One socket of an attacker."""

    def __init__(
        self, broker: Broker | Address, timeout_s: float = ANSWER_TIMEOUT_S, receive_bytes: int | None = None
    ) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(timeout_s)
        self.socket.connect((broker.host, broker.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> "Peer":
        """Also when the broker hangs up in the middle of it, as it well may."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return self

    def reply(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def call(self, key: int, version: int, **fields: Any) -> Any:
        return self.ask(key, version, request(key, version, **fields))

    def ask(self, key: int, version: int, frame: bytes) -> Any:
        self.send(frame)
        return answer(key, version, self.reply())

    def hung_up(self) -> bool:
        """Whether the broker closes the connection, with whatever replies before."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)


def provoke(broker: Broker, data: bytes) -> None:
    """Send it, and take whatever comes of it."""
    with Peer(broker, REPLY_S_MAX) as peer:
        peer.send(data)
        try:
            peer.socket.shutdown(socket.SHUT_WR)
            while peer.socket.recv(65536):
                pass
        except OSError:
            pass


def answer(key: int, version: int, frame: bytes) -> Any:
    _, position = read_response_header(key, version, frame)
    decoded, _ = api(key).response.decoder(version)(memoryview(frame), position, 10_000_000)
    return decoded


def create_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> str:
    entries = [
        part_of(CREATE_TOPICS, "CreatableTopicConfig")(key.replace("_", "."), value) for key, value in configs.items()
    ]
    topic = part_of(CREATE_TOPICS, "CreatableTopic")(name, partitions, 1, configs=entries)
    with Peer(broker) as peer:
        (made,) = peer.call(CREATE_TOPICS, 7, topics=[topic], timeout_ms=10_000).topics
    assert made.error_code in (0, 36), made
    return name


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


# ------------------------------------------------------------------------------------------------ the good client


@dataclass
class Served:
    """How the good client fared."""

    rounds: int = 0
    worst_s: float = 0.0
    resident_bytes_max: int = 0
    error: str | None = None


def be_good(host: str, port: int, pid: int) -> Served:
    """Produce and read it back, over and over until standard input ends."""
    served = Served()
    try:
        with Peer(Address(host, port)) as peer:
            _good_round(peer)
            print("ready", flush=True)
            over = False
            while not over:
                over = bool(select.select([sys.stdin], [], [], PROBE_PAUSE_S)[0])
                began = time.monotonic()
                _good_round(peer)
                served.worst_s = max(served.worst_s, time.monotonic() - began)
                served.rounds += 1
                served.resident_bytes_max = max(served.resident_bytes_max, resident_bytes(pid))
    except Exception as error:
        served.error = repr(error)
    return served


def _good_round(peer: Peer) -> None:
    produced = peer.ask(PRODUCE, 8, produce_frame(GOOD_TOPIC, batch_of(b"good")))
    (partition,) = produced.responses[0].partition_responses
    assert partition.error_code == 0, partition
    fetched = peer.ask(FETCH, 11, fetch_frame(GOOD_TOPIC, [0], offset=partition.base_offset))
    (found,) = fetched.responses[0].partitions
    assert found.error_code == 0, found
    assert found.high_watermark > partition.base_offset
    assert b"good" in bytes(found.records)


@contextmanager
def good_client(broker: Broker, attack: str, resident_mib_max: int, script: str | Path = __file__) -> Iterator[None]:
    """A good client works while the block attacks; afterwards everything that was promised is checked."""
    create_topic(broker, GOOD_TOPIC, flush="os")
    command = [sys.executable, str(script), broker.host, str(broker.port), str(broker.pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first == "ready\n", first
            yield
            rest, _ = process.communicate(timeout=ANSWER_TIMEOUT_S + 5)
        finally:
            process.kill()
    served = Served(**json.loads(rest))
    _note(attack, served)
    assert broker.running, broker.output[-4000:]
    assert served.error is None, (served.error, broker.output[-4000:])
    assert served.rounds > 0
    assert served.worst_s < LATENCY_S_MAX
    assert served.resident_bytes_max < resident_mib_max * MIB, f"{served.resident_bytes_max // MIB} MiB resident"
    assert UNEXPECTED.findall(broker.output) == [], broker.output[-6000:]


def _note(attack: str, served: Served) -> None:
    """A row for the table in the documentation, for whoever asks for it."""
    path = os.environ.get("HOSTILE_TABLE")
    if path:
        resident_mib = served.resident_bytes_max // MIB
        row = f"| {attack} | {served.worst_s * 1000:.0f} ms | {resident_mib} MiB | {served.rounds} |\n"
        with open(path, "a", encoding="utf-8") as table:
            table.write(row)


if __name__ == "__main__":
    print(json.dumps(asdict(be_good(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
