"""`GET /v1/topics/{topic}/records`: committed records of one partition, from an offset or a time.

The partition's leader answers, wherever it is. With `wait` an empty answer is held back until something comes. Records
of aborted transactions are left out, and those of open ones are not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall, parse_number
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON, NO_STORE, Reply
from skidway.gateways.http.topics import shapes
from skidway.gateways.http.topics.leaders import (
    CHANNEL,
    MOVED,
    RETRY_MS,
    ask_leader,
    ask_node,
    find_topic,
    leader_of,
    no_leader,
    problem_of,
    sleep,
)
from skidway.gateways.http.topics.values import shown, shown_headers
from skidway.limits import INT32_MAX, INT64_MAX, MIB
from skidway.metadata.image import NO_LEADER
from skidway.ports import Buffer, FileSlice
from skidway.records.batch import HEADER_BYTES, BatchHeader, read_header
from skidway.records.compression import Codec
from skidway.records.record import Record, open_batch, unpack_records
from skidway.steps import Job, Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from skidway.wire.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

WAIT_MS_MAX = 30_000
ANSWER_MS = 10_000
REMOTE_WAIT_MS_MAX = 1_000
"""Another node is not told that nobody waits any more, so it is asked for this long at a time."""
POLL_MS = 200
"""How often another node is asked when it cannot be waited for."""
RECORDS_DEFAULT, RECORDS_MAX = 500, 10_000
BYTES_DEFAULT, BYTES_MAX = MIB, 8 * MIB
READ_AT_ONCE = 64 << 10
READ_COMMITTED = 1
LATEST, EARLIEST = -1, -2
NAMED = {"latest": LATEST, "earliest": EARLIEST}
_encode = msgspec.json.Encoder().encode


class Wanted(NamedTuple):
    topic: str
    partition: int
    wait_ms: int
    records_max: int
    bytes_max: int


class Read(NamedTuple):
    """What a leader sent, in memory of its own."""

    records: Buffer | FileSlice
    high_watermark: int
    aborted: list[tuple[int, int]]
    """Producers and where their transactions began, in that order."""


def records(call: HttpCall) -> Steps[Reply]:
    query = call.query()
    wanted = Wanted(
        call.values[0],
        parse_number(query, "partition", 0, 0, INT32_MAX),
        parse_number(query, "wait", 0, 0, WAIT_MS_MAX),
        parse_number(query, "max", RECORDS_DEFAULT, 1, RECORDS_MAX),
        parse_number(query, "maxBytes", BYTES_DEFAULT, 1, BYTES_MAX),
    )
    offset = yield from begin_at(call, wanted, query)
    read = yield from poll(call, wanted, offset)
    found: list[bytes] = []
    next_offset = yield from decode(call, read, offset, wanted.records_max, lambda record: found.append(_shown(record)))
    text = b'{"topic":%b,"partition":%d,"records":[%b],"nextOffset":%d,"highWatermark":%d}' % (
        _encode(wanted.topic),
        wanted.partition,
        b",".join(found),
        next_offset,
        read.high_watermark,
    )
    return Reply(200, JSON, text, NO_STORE)


def begin_at(call: HttpCall, wanted: Wanted, query: dict[str, str]) -> Steps[int]:
    if "timestamp" in query:
        if "offset" in query:
            raise Problem(400, "bad_query", "offset and timestamp are two ways to say where to begin: give one")
        timestamp: int = parse_number(query, "timestamp", 0, 0, INT64_MAX)
        found = yield from _look_up(call, wanted, timestamp)
        return found if found >= 0 else (yield from _look_up(call, wanted, LATEST))
    named = NAMED.get(query.get("offset", "earliest"))
    if named is not None:
        return (yield from _look_up(call, wanted, named))
    offset: int = parse_number(query, "offset", 0, 0, INT64_MAX)
    return offset


def _look_up(call: HttpCall, wanted: Wanted, timestamp: int) -> Steps[int]:
    asked = [ListOffsetsTopic(wanted.topic, [ListOffsetsPartition(wanted.partition, -1, timestamp)])]
    request = ListOffsetsRequest(-1, READ_COMMITTED, asked, ANSWER_MS)
    answer: Any = yield from ask_leader(call, wanted.topic, wanted.partition, request, call.now_ms + ANSWER_MS)
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        raise problem_of(partition.error_code)
    return int(partition.offset)


# --- asking ---


def is_stopping(call: HttpCall) -> bool:
    """Nobody waits any longer for what may come."""
    return call.site.node.rooms.registration.leaving


def poll(call: HttpCall, wanted: Wanted, offset: int) -> Steps[Read]:
    """What the leader has from the offset on; waits for it if there is nothing. Raises Problem."""
    node = call.site.node
    until_ms = node.clock.monotonic_ms() + wanted.wait_ms
    give_up_ms = until_ms + ANSWER_MS
    while True:
        topic = find_topic(call, wanted.topic)
        leader = leader_of(call, topic, wanted.partition)
        left_ms = max(0, until_ms - node.clock.monotonic_ms())
        again_ms = RETRY_MS
        if leader != NO_LEADER:
            data = yield from _fetch(call, wanted, topic.id, leader, offset, left_ms)
            if data is not None and data.error_code not in MOVED:
                read = read_of(data)
                left_ms = max(0, until_ms - node.clock.monotonic_ms())
                if not left_ms or len(read.records) or is_stopping(call):
                    return read
                again_ms = 0 if leader == node.settings.node_id or left_ms < POLL_MS else POLL_MS
        if node.clock.monotonic_ms() + RETRY_MS >= give_up_ms:
            raise no_leader(wanted.topic, wanted.partition)
        yield Question(sleep(call, again_ms))


def _fetch(
    call: HttpCall, wanted: Wanted, topic_id: bytes, leader: int, offset: int, wait_ms: int
) -> Steps[PartitionData | None]:
    channels, channel, number = call.site.channels, CHANNEL, None
    if leader != call.site.node.settings.node_id and wait_ms:
        number = channels.take(leader)
        channel = CHANNEL if number is None else f"{CHANNEL}-{number}"
        wait_ms = 0 if number is None else min(wait_ms, REMOTE_WAIT_MS_MAX)
    partition = FetchPartition(wanted.partition, fetch_offset=offset, partition_max_bytes=wanted.bytes_max)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=wanted.bytes_max,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(wanted.topic, topic_id, [partition])],
    )
    asking = _Asking(call, leader, channel, request, wait_ms)
    if number is not None:
        asking.when_answered = partial(channels.give_back, leader, number)
    try:
        found: PartitionData | None = yield Question(asking.ask)
    finally:
        asking.give_up()
    return found


class _Asking:
    """One fetch under way. A poll of this node ends when nobody waits for it; a channel to another one is free again
    when that has answered."""

    __slots__ = ("_call", "_channel", "_inner", "_leader", "_request", "_wait_ms", "when_answered")

    def __init__(self, call: HttpCall, leader: int, channel: str, request: FetchRequest, wait_ms: int) -> None:
        self._call = call
        self._leader = leader
        self._channel = channel
        self._request = request
        self._wait_ms = wait_ms
        self._inner: Any = None
        self.when_answered: Callable[[], None] = lambda: None

    def ask(self, respond: Callable[[Any], None]) -> None:
        def take(answer: Message | None) -> None:
            self._inner = None
            self.when_answered()
            respond(_own(answer))

        timeout_ms = self._wait_ms + ANSWER_MS
        inner = ask_node(self._call, self._leader, self._request, timeout_ms, take, self._channel)
        if inner is not None and not inner.answered:
            self._inner = inner

    def give_up(self) -> None:
        if self._inner is not None:
            self._inner.give_up()


def _own(answer: Message | None) -> PartitionData | None:
    """The answer about the partition; what another node sent is read over soon, so it is copied."""
    if not isinstance(answer, FetchResponse):
        return None
    if answer.error_code or not answer.responses:
        return PartitionData(0, answer.error_code or ErrorCode.UNKNOWN_TOPIC_ID)
    data = answer.responses[0].partitions[0]
    if data.records is not None and not isinstance(data.records, FileSlice | bytes):
        data.records = bytes(data.records)
    return data


def read_of(data: PartitionData) -> Read:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise Problem(422, "offset_out_of_range", "there is no such offset in the partition, nor is it the next one")
    if data.error_code:
        raise problem_of(data.error_code)
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
    records: Any = b"" if data.records is None else data.records
    return Read(records, data.last_stable_offset, [(producer, first) for first, producer in aborted])


# --- reading ---


def decode(call: HttpCall, read: Read, offset: int, records_max: int, take: Callable[[Record], None]) -> Steps[int]:
    """Give the records from the offset on to `take`, in steps; returns the offset behind the last that was looked
    at."""
    data: Buffer = b""
    if not isinstance(read.records, FileSlice):
        data = read.records
    elif len(read.records) <= READ_AT_ONCE:
        data = read.records.read()
    else:
        data = yield Job(read.records.read)
    view, position, left = memoryview(data), 0, records_max
    committed = _Committed(read.aborted)
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.size > len(view) - position:
            break  # the log sends whole batches, but for a last one that is larger than was asked for
        if header.last_offset >= offset and committed.shows(header):
            for record in unpack_records(*(yield from _open(call, view[position : position + header.size], header))):
                if record.offset < offset:
                    continue
                if not left:
                    return record.offset
                left -= 1
                take(record)
                yield None
        position += header.size
        offset = max(offset, header.last_offset + 1)
    return offset


def _open(call: HttpCall, batch: memoryview, header: BatchHeader) -> Steps[tuple[BatchHeader, bytes | bytearray]]:
    bytes_max = call.site.node.limits.decompressed_bytes_max
    opening = partial(open_batch, batch, decompressed_bytes_max=bytes_max)
    if header.codec == Codec.NONE:
        return opening()
    opened: tuple[BatchHeader, bytes | bytearray] = yield Job(opening)
    return opened


class _Committed:
    """Which batches are shown, looked at in their order: no markers, and nothing of transactions that were aborted."""

    __slots__ = ("_aborted", "_aborting")

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._aborted = list(reversed(aborted))
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if header.is_control:
            self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)


def as_json(record: Record) -> shapes.Record:
    key, key_base64 = shown(record.key)
    value, value_base64 = shown(record.value)
    headers = shown_headers(record.headers) if record.headers else UNSET
    return shapes.Record(record.offset, record.timestamp, key, key_base64, value, value_base64, headers)


def _shown(record: Record) -> bytes:
    return _encode(as_json(record))
