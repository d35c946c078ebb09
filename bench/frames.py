"""Requests as bytes, ready to be sent on a raw socket, and the few replies the benchmark reads.

Independent of the broker's own codec on purpose: a mistake there must not hide behind the same mistake here.
Flexible versions are used where clients of today use them: Produce v9, Fetch v12, CreateTopics v5, Metadata v9.
"""

import socket
import struct
import time
from dataclasses import dataclass, field

import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
CLIENT_ID = b"bench"
TOPIC_ALREADY_EXISTS = 36

_BATCH = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21


class BenchError(Exception):
    """The broker answered something that makes the measurement worthless."""


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint(number: int) -> bytes:
    return uvarint((number << 1) ^ (number >> 63))


def compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


def frame(api: int, version: int, body: bytes, *, flexible: bool, correlation: int = 0) -> bytes:
    header = struct.pack(">hhih", api, version, correlation, len(CLIENT_ID)) + CLIENT_ID
    message = header + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(message)) + message


def record(index: int, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(index) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


@dataclass(slots=True)
class Batch:
    """One record batch as a producer would send it."""

    data: bytes
    records: int
    value_bytes: int = field(default=0)  # of all records together


def batch(value_bytes: int, *, records: int | None = None, bytes_max: int | None = None) -> Batch:
    """A batch of equal-sized values: so many records, or as many as fit into bytes_max."""
    assert (records is None) != (bytes_max is None)
    now_ms = int(time.time() * 1000)
    payload = bytearray()
    count = 0
    while records is None or count < records:
        one = record(count, (b"%08d" % count * (value_bytes // 8 + 1))[:value_bytes])
        if bytes_max is not None and _BATCH.size + len(payload) + len(one) > bytes_max:
            break
        payload += one
        count += 1
    assert count > 0
    length = _BATCH.size - 12 + len(payload)
    data = bytearray(_BATCH.pack(0, length, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + payload)
    struct.pack_into(">I", data, 17, crc32c.crc32c(memoryview(data)[_CRC_FROM:]))
    return Batch(bytes(data), count, count * value_bytes)


def check_batch(data: bytes | memoryview) -> int:
    """The number of records in a batch that came back; BenchError if its bytes are not sound."""
    header = _BATCH.unpack_from(data)
    end = header[1] + 12
    if header[3] != 2 or len(data) < end or crc32c.crc32c(memoryview(data)[_CRC_FROM:end]) != header[4]:
        raise BenchError("a fetched batch is damaged")
    return int(header[12])


def produce(topic: str, partition: int, records: bytes, *, acks: int) -> bytes:
    """Produce v9 for one partition."""
    body = b"\0" + struct.pack(">hi", acks, 30_000) + b"\2" + compact(topic.encode()) + b"\2"
    body += struct.pack(">i", partition) + uvarint(len(records) + 1) + records + b"\0\0\0"
    return frame(PRODUCE, 9, body, flexible=True)


def produce_error_at(topic: str) -> int:
    """Where, from the length prefix on, a Produce v9 reply for one partition has its error code."""
    return 4 + 4 + 1 + 1 + len(compact(topic.encode())) + 1 + 4


@dataclass(slots=True)
class FetchFrame:
    data: bytearray
    offset_at: int  # where the fetch offset (int64) is patched in


def fetch(topic: str, partition: int, *, max_bytes: int, max_wait_ms: int = 500) -> FetchFrame:
    """Fetch v12 for one partition, without a session."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1) + b"\2" + compact(topic.encode()) + b"\2"
    body += struct.pack(">ii", partition, -1)
    tail = struct.pack(">qiqi", 0, -1, -1, max_bytes) + b"\0\0" + b"\1" + b"\1" + b"\0"
    data = bytearray(frame(FETCH, 12, body + tail, flexible=True))
    return FetchFrame(data, len(data) - len(tail))


def fetch_records_at(topic: str) -> int:
    """Where, from the length prefix on, a Fetch v12 reply for one partition has the (varint) length of its records.

    The list of aborted transactions is null or empty for a read_uncommitted fetch: one byte either way.
    """
    return fetch_error_at(topic) + 2 + 8 + 8 + 8 + 1 + 4


def fetch_error_at(topic: str) -> int:
    return 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(compact(topic.encode())) + 1 + 4


class Peer:
    """A blocking connection for the set-up around a measurement."""

    def __init__(self, address: str, timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.socket.recv_into(view)
            if not got:
                raise ConnectionError("the broker closed the connection")
            view = view[got:]
        return data

    def exchange(self, request: bytes | bytearray) -> bytes:
        """One request, one reply, with its length prefix."""
        self.socket.sendall(request)
        prefix = self._receive(4)
        return bytes(prefix + self._receive(int(struct.unpack(">i", prefix)[0])))

    def brokers(self) -> int:
        """How many brokers Metadata v1 lists."""
        reply = self.exchange(frame(METADATA, 1, struct.pack(">i", 0), flexible=False))
        return int(struct.unpack_from(">i", reply, 8)[0])

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """CreateTopics v4; returns when the partitions have a leader."""
        body = struct.pack(">i", 1) + text(name) + struct.pack(">ihii", partitions, 1, 0, len(configs))
        body += b"".join(text(key) + text(value) for key, value in configs.items()) + struct.pack(">ib", 10_000, 0)
        reply = self.exchange(frame(CREATE_TOPICS, 4, body, flexible=False))
        at = 8 + 4 + 4 + 2 + len(name.encode())
        if error := struct.unpack_from(">h", reply, at)[0]:
            raise BenchError(f"topic {name} could not be created: error {error}")
        self.await_leaders(name, partitions)

    def await_leaders(self, name: str, partitions: int, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._serves(name, partitions):
            if time.monotonic() > deadline:
                raise BenchError(
                    f"the {partitions} partitions of {name} are not served {timeout_s:.0f} s after creation"
                )
            time.sleep(0.02)

    def _serves(self, name: str, partitions: int) -> bool:
        """Kafka names a leader a moment before that leader knows it, so each partition is asked as well."""
        if self.leaders(name) != partitions:
            return False
        try:
            return all(self.end_offset(name, partition) == 0 for partition in range(partitions))
        except BenchError:
            return False

    def leaders(self, name: str) -> int:
        """How many partitions of a topic have a leader, by Metadata v1."""
        reply = self.exchange(frame(METADATA, 1, struct.pack(">i", 1) + text(name), flexible=False))
        at = 8
        (brokers,) = struct.unpack_from(">i", reply, at)
        at += 4
        for _ in range(brokers):
            at += 4
            at += 2 + struct.unpack_from(">h", reply, at)[0] + 4
            at += 2 + max(0, struct.unpack_from(">h", reply, at)[0])
        at += 4 + 4  # controller, topic count
        error, length = struct.unpack_from(">hh", reply, at)
        if error:
            return 0
        at += 4 + length + 1
        (partitions,) = struct.unpack_from(">i", reply, at)
        at += 4
        led = 0
        for _ in range(partitions):
            error, _, leader = struct.unpack_from(">hii", reply, at)
            at += 10
            for _ in range(2):  # replicas, in-sync replicas
                at += 4 + 4 * struct.unpack_from(">i", reply, at)[0]
            led += error == 0 and leader >= 0
        return led

    def delete_topic(self, name: str) -> None:
        """DeleteTopics v1."""
        body = struct.pack(">i", 1) + text(name) + struct.pack(">i", 10_000)
        reply = self.exchange(frame(DELETE_TOPICS, 1, body, flexible=False))
        (error,) = struct.unpack_from(">h", reply, len(reply) - 2)
        if error:
            raise BenchError(f"topic {name} could not be deleted: error {error}")

    def end_offset(self, topic: str, partition: int) -> int:
        """ListOffsets v1 for the end."""
        body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, -1)
        reply = self.exchange(frame(LIST_OFFSETS, 1, body, flexible=False))
        error, _, offset = struct.unpack_from(">hqq", reply, len(reply) - 18)
        if error:
            raise BenchError(f"the end of {topic}-{partition} is not known: error {error}")
        return int(offset)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data
