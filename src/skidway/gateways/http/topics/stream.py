"""`GET /v1/topics/{topic}/stream`: records of a topic as server-sent events, as they come.

The id of an event says of each partition what comes next in it, as `0:17,1:4`, so a browser that lost its connection
resumes with the header `Last-Event-ID` where it was. A partition that the id does not name was not there when it was
given, and is read from its beginning. A client that does not read is not sent more: the next records are fetched when
the last are on their way. A comment now and then shows proxies that the connection lives.
"""

from __future__ import annotations

import re

import msgspec

from skidway.gateways.http.call import HttpCall, parse_number
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import NO_STORE, Reply
from skidway.gateways.http.topics.leaders import find_topic, leader_of
from skidway.gateways.http.topics.records import Wanted, as_json, begin_at, decode, is_stopping
from skidway.gateways.http.topics.watch import PARTITIONS_MAX, Found, Watch
from skidway.limits import INT32_MAX, INT64_MAX
from skidway.metadata.image import Topic
from skidway.records.record import Record
from skidway.steps import Question, Steps

CONTENT_TYPE = b"text/event-stream"
HEADERS = NO_STORE + b"x-accel-buffering: no\r\n"
COMMENT_MS = 15_000
RECORDS_AT_ONCE = 500
COMMENT = b": nothing new\n\n"
ALL = "all"
_POSITION = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")
_encode = msgspec.json.Encoder().encode


def stream(call: HttpCall) -> Steps[Reply | None]:
    query = call.query()
    topic = find_topic(call, call.values[0])
    watch = yield from begin_watch(call, topic, query, call.head.headers.get(b"last-event-id", b"").decode("latin-1"))
    try:
        found = yield from watch.next(0)
        if call.head.method == "HEAD":
            return Reply(200, CONTENT_TYPE, b"", HEADERS)
        call.begin_stream(CONTENT_TYPE, HEADERS)
        yield from _stream(call, watch, found)
        call.end_stream()
    finally:
        watch.close()
    return None


def _stream(call: HttpCall, watch: Watch, found: Found) -> Steps[None]:
    """Until the node stops, or something is wrong."""
    ids = _Ids(watch.positions)
    while True:
        events: list[bytes] = []
        for index, read in found:

            def take(record: Record, index: int = index, events: list[bytes] = events) -> None:
                events.append(b"id: %b\ndata: %b\n\n" % (ids.at(index, record.offset + 1), data_of(index, record)))

            offset = yield from decode(call, read, watch.positions[index], RECORDS_AT_ONCE, take)
            watch.advance(index, offset)
        call.write(b"".join(events) or COMMENT)
        yield Question(call.when_sent)
        if is_stopping(call):
            return
        try:
            found = yield from watch.next(COMMENT_MS)
        except Problem as problem:
            call.write(b"event: error\ndata: %b\n\n" % problem.body())
            return


def data_of(index: int, record: Record) -> bytes:
    """As in an answer with records, and the partition."""
    return b'{"partition":%d,%b' % (index, _encode(as_json(record))[1:])


class _Ids:
    """Positions as the id of an event."""

    __slots__ = ("_parts",)

    def __init__(self, positions: dict[int, int]) -> None:
        self._parts = {index: b"%d:%d" % (index, positions[index]) for index in sorted(positions)}

    def at(self, index: int, offset: int) -> bytes:
        self._parts[index] = b"%d:%d" % (index, offset)
        return b",".join(self._parts.values())


# --- where a stream begins ---


def begin_watch(call: HttpCall, topic: Topic, query: dict[str, str], resumed: str) -> Steps[Watch]:
    """`query` has partition, offset and timestamp, or some of them; `resumed` is an id, which beats them. Raises
    Problem."""
    text = query.get("partition", ALL)
    chosen = range(len(topic.partitions)) if text == ALL else _indexes(call, topic, text)
    if len(chosen) > PARTITIONS_MAX:
        text = f"a stream has at most {PARTITIONS_MAX} partitions, not {len(chosen)}: name some of them"
        raise Problem(422, "too_many_partitions", text)
    whole = text == ALL
    if resumed:
        known = _positions("bad_event_id", "Last-Event-ID", resumed, chosen)
        return Watch(call, topic, {index: known.get(index, 0) for index in chosen}, whole=whole)
    positions: dict[int, int] = {}
    offset = query.get("offset", "latest")
    if ":" in offset:
        positions = _positions("bad_query", "offset", offset, chosen)
    elif offset.isdigit() and len(chosen) != 1:
        raise Problem(422, "bad_value", "an offset as a number needs one partition; for more: offset=0:17,1:4")
    begins = query if "timestamp" in query else {**query, "offset": "latest" if positions else offset}
    for index in chosen:
        if index not in positions:
            wanted = Wanted(topic.name, index, 0, 1, 1)
            positions[index] = yield from begin_at(call, wanted, begins)
    return Watch(call, topic, positions, whole=whole)


def _indexes(call: HttpCall, topic: Topic, text: str) -> list[int]:
    found = [
        parse_number({"partition": each}, "partition", 0, 0, INT32_MAX)
        for each in text.split(",", PARTITIONS_MAX)[: PARTITIONS_MAX + 1]
    ]
    for index in found:
        leader_of(call, topic, index)  # it exists
    if len(set(found)) != len(found):
        raise Problem(400, "bad_query", "a partition is named twice")
    return found


def _positions(code: str, name: str, text: str, chosen: range | list[int]) -> dict[int, int]:
    """As an id has them."""
    found: dict[int, int] = {}
    for each in text.split(",", PARTITIONS_MAX):
        matched = _POSITION.fullmatch(each)
        index = -1 if matched is None else int(matched[1])
        if matched is None or index not in chosen or index in found or int(matched[2]) > INT64_MAX:
            expected = "PARTITION:OFFSET of partitions of this stream, divided by commas"
            raise Problem(400, code, f"{name} must be {expected}; got {each[:50]!r}")
        found[index] = int(matched[2])
    return found
