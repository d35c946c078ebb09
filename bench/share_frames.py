"""Requests of share groups as bytes, and what the benchmark reads of their replies; see `frames`.

ShareGroupHeartbeat, ShareFetch and ShareAcknowledge v1, which every broker with share groups has, and
IncrementalAlterConfigs v1. A `Session` is one member's at one broker: it counts the epochs, and makes the next request.
"""

import struct

from bench.frames import BenchError, compact, frame, text, uvarint

FIND_COORDINATOR, INCREMENTAL_ALTER_CONFIGS, SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 10, 44, 76, 78, 79
GROUP_RESOURCE = b"\x20"
SET = b"\0"
ACCEPT, RELEASE, REJECT = 1, 2, 3
BODY_AT = 9
"""In a reply, from the length prefix on: length, correlation, tags."""
NOT_YET = {14, 15, 16}
"""The coordinator loads, or its topic is being made."""
_ERROR_AT_ACKNOWLEDGE = BODY_AT + 4
_PARTITION_ERROR_AT = _ERROR_AT_ACKNOWLEDGE + 2 + 1 + 1 + 16 + 1 + 4
_ACKNOWLEDGEMENT = struct.Struct(">qq")
_ACQUIRED = struct.Struct(">qqh")

Range = tuple[int, int]
"""First and last offset, both held."""


def alter_groups(groups: list[str], settings: dict[str, str]) -> bytes:
    entries = b"".join(compact(key.encode()) + SET + compact(value.encode()) + b"\0" for key, value in settings.items())
    body = uvarint(len(groups) + 1)
    for group in groups:
        body += GROUP_RESOURCE + compact(group.encode()) + uvarint(len(settings) + 1) + entries + b"\0"
    return frame(INCREMENTAL_ALTER_CONFIGS, 1, body + b"\0\0", flexible=True)


def find_coordinator(group: str) -> bytes:
    """Version 1, whose error is ERROR_OF_COORDINATOR_AT."""
    return frame(FIND_COORDINATOR, 1, text(group) + b"\0", flexible=False)


ERROR_OF_COORDINATOR_AT = 12


def heartbeat(group: str, member: str, epoch: int, topics: list[str] | None) -> bytes:
    body = compact(group.encode()) + compact(member.encode()) + struct.pack(">i", epoch) + b"\0"
    if topics is None:
        body += b"\0"
    else:
        body += uvarint(len(topics) + 1) + b"".join(compact(topic.encode()) for topic in topics)
    return frame(SHARE_GROUP_HEARTBEAT, 1, body + b"\0", flexible=True)


class Fields:
    """Reads the fields of one reply, in their order."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes | bytearray | memoryview, at: int = BODY_AT) -> None:
        self.data, self.at = data, at

    def number(self, layout: str) -> int:
        found = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return int(found[0])

    def count(self) -> int:
        """Of an array, or bytes of a string; -1: null."""
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number - 1

    def skip_text(self) -> None:
        size = self.count()
        self.at += max(0, size)


class Beaten:
    """What a heartbeat was answered: the member's epoch, when to come back, its partitions by topic id (None: as
    before)."""

    __slots__ = ("assigned", "epoch", "interval_ms")

    def __init__(self, reply: bytes) -> None:
        fields = Fields(reply)
        fields.number("i")
        error = fields.number("h")
        if error:
            raise BenchError(f"a member of a share group was refused: error {error}")
        fields.skip_text()
        fields.skip_text()
        self.epoch, self.interval_ms = fields.number("i"), fields.number("i")
        self.assigned: dict[bytes, list[int]] | None = None
        if fields.number("b") < 0:
            return
        self.assigned = {}
        for _ in range(fields.count()):
            topic_id = bytes(fields.data[fields.at : fields.at + 16])
            fields.at += 16
            self.assigned[topic_id] = [fields.number("i") for _ in range(fields.count())]
            fields.at += 1


class Session:
    """One member's share session, over places of one topic."""

    def __init__(self, group: str, member: str, topic_id: bytes, partitions: list[int]) -> None:
        self._names = compact(group.encode()) + compact(member.encode())
        self._topic = b"\2" + topic_id
        self._partitions = partitions
        self._fetch_head = frame(SHARE_FETCH, 1, self._names, flexible=True)[4:]
        self._acknowledge_head = frame(SHARE_ACKNOWLEDGE, 1, self._names, flexible=True)[4:]
        self.epoch = 0

    def next_epoch(self) -> int:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return epoch

    def fetch(self, records: int, wait_ms: int, accepted: dict[int, list[Range]], types: bytes = b"\1") -> bytes:
        """With acknowledgements of earlier deliveries, by partition. `types`: of each range, for the whole of it or
        one for each offset."""
        epoch = self.next_epoch()
        parts = [self._fetch_head, struct.pack(">iiiiii", epoch, wait_ms, 1, 50 << 20, records, records)]
        named = accepted if epoch else {index: [] for index in self._partitions}
        parts.append(self._named(named, types))
        parts.append(b"\1\0")
        return _framed(parts)

    def acknowledge(self, accepted: dict[int, list[Range]], types: bytes = b"\1") -> bytes:
        parts = [self._acknowledge_head, struct.pack(">i", self.next_epoch()), self._named(accepted, types), b"\0"]
        return _framed(parts)

    def _named(self, accepted: dict[int, list[Range]], types: bytes) -> bytes:
        if not accepted:
            return b"\1"
        parts = [self._topic, uvarint(len(accepted) + 1)]
        tail = uvarint(len(types) + 1) + types + b"\0"
        for index, ranges in accepted.items():
            parts += [struct.pack(">i", index), uvarint(len(ranges) + 1)]
            parts += [_ACKNOWLEDGEMENT.pack(*each) + tail for each in ranges]
            parts.append(b"\0")
        parts.append(b"\0")
        return b"".join(parts)

    def singly(self, partition: int) -> "Singly":
        return Singly(self, self._acknowledge_head, self._topic, partition)


class Singly:
    """Acknowledgements of one record each, as a request for each: prepared, with places for epoch and offset."""

    def __init__(self, session: Session, head: bytes, topic: bytes, partition: int) -> None:
        self._session = session
        body = head + struct.pack(">i", 0) + topic + b"\2" + struct.pack(">i", partition) + b"\2"
        self._epoch_at, self._offset_at = 4 + len(head), 4 + len(body)
        body += _ACKNOWLEDGEMENT.pack(0, 0) + b"\2\1\0" + b"\0" + b"\0" + b"\0"
        self._frame = struct.pack(">i", len(body)) + body

    def accept(self, first: int, last: int) -> bytearray:
        """One frame for each offset, one behind the other."""
        size, count = len(self._frame), last - first + 1
        frames = bytearray(self._frame * count)
        epoch_at, offset_at, epoch = self._epoch_at, self._offset_at, self._session.epoch
        put_epoch, put_offset = struct.Struct(">i").pack_into, _ACKNOWLEDGEMENT.pack_into
        for number in range(count):
            put_epoch(frames, epoch_at, epoch + number)
            put_offset(frames, offset_at, first + number, first + number)
            epoch_at += size
            offset_at += size
        self._session.epoch += count
        return frames


def check_acknowledged(reply: bytes | bytearray | memoryview) -> None:
    """BenchError unless an acknowledgement of one partition went well."""
    (error,) = struct.unpack_from(">h", reply, _ERROR_AT_ACKNOWLEDGE)
    if not error and len(reply) > _PARTITION_ERROR_AT + 2:
        (error,) = struct.unpack_from(">h", reply, _PARTITION_ERROR_AT)
    if error:
        raise BenchError(f"an acknowledgement was refused: error {error}")


def read_fetch(reply: bytes | bytearray | memoryview) -> dict[int, list[Range]]:
    """What was acquired, by partition; BenchError if anything went wrong."""
    fields = Fields(reply)
    fields.number("i")
    if error := fields.number("h"):
        raise BenchError(f"a share fetch was refused: error {error}")
    fields.skip_text()
    fields.number("i")
    acquired: dict[int, list[Range]] = {}
    for _ in range(fields.count()):
        fields.at += 16
        for _ in range(fields.count()):
            _read_partition(fields, acquired)
        fields.at += 1
    return acquired


def _read_partition(fields: Fields, acquired: dict[int, list[Range]]) -> None:
    index, error = struct.unpack_from(">ih", fields.data, fields.at)
    fields.at += 6
    fields.skip_text()
    refused = fields.number("h")
    fields.skip_text()
    if error or refused:
        raise BenchError(f"partition {index} of a share fetch: error {error}, of its acknowledgements {refused}")
    fields.at += 9
    records_bytes = fields.count()
    fields.at += max(0, records_bytes)
    ranges = []
    for _ in range(fields.count()):
        first, last, _ = _ACQUIRED.unpack_from(fields.data, fields.at)
        ranges.append((first, last))
        fields.at += _ACQUIRED.size + 1
    fields.at += 1
    if ranges:
        acquired.setdefault(index, []).extend(ranges)


def error_of(reply: bytes) -> int:
    """Of a heartbeat."""
    return int(struct.unpack_from(">h", reply, BODY_AT + 4)[0])


def _framed(parts: list[bytes]) -> bytes:
    return b"".join([struct.pack(">i", sum(map(len, parts))), *parts])
