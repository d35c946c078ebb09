"""Messages out of a queue, from whichever nodes lead its partitions.

All leaders are asked in turn, this node first, until one has a message. If none has, a receive that may wait parks: at
this node so that it takes the first message that comes; at others with a question that takes nothing, because nobody
tells them when the client closes its connection. A client that is gone before it has its answer took nothing: what was
acquired for it is put back, and does not count as a delivery. That it is gone may be known before the shell tells, and
of one that pipelines its requests nobody tells, so it is looked for before and after.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

from skidway.broker.api.call import LocalCall
from skidway.errors import CorruptMessage, InvalidRecord
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.topics.leaders import CHANNEL, RETRY_MS, sleep
from skidway.gateways.http.topics.records import READ_AT_ONCE, is_stopping
from skidway.gateways.queues.catalog import ids_of
from skidway.gateways.queues.errors import HeldUp, NoSuchQueue, QueueUnavailable
from skidway.gateways.queues.holding import held_up
from skidway.gateways.queues.leaders import AGAIN, ANSWER_MS, ask_as_node, by_leader
from skidway.gateways.queues.opened import Opened
from skidway.gateways.queues.settling import settle, untake_request
from skidway.gateways.queues.types import Ack, Extend, Queue, Received
from skidway.limits import MIB
from skidway.metadata.image import NO_LEADER
from skidway.ports import Buffer, FileSlice
from skidway.records.batch import HEADER_BYTES, read_header
from skidway.records.compression import Codec
from skidway.records.record import Bookmark, Record, open_batch, pick_records
from skidway.steps import Job, Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.receive_messages import ReceiveMessagesRequest, ReceiveMessagesResponse

REMOTE_WAIT_MS_MAX = 1_000
"""Another node is not told that nobody waits any more, so it is asked for this long at a time."""
POLL_MS = 200
"""How often another node is asked when it cannot be waited for."""
BYTES_MAX = 4 * MIB


class Asked:
    """One receive: what it wants, and from where."""

    __slots__ = ("call", "count", "give_up_ms", "held_up", "queue", "until_ms", "visibility_ms")

    def __init__(self, call: HttpCall, queue: Queue, count: int, wait_ms: int, visibility_ms: int) -> None:
        self.call = call
        self.queue = queue
        self.count = count
        self.visibility_ms = visibility_ms
        self.until_ms = call.site.node.clock.monotonic_ms() + wait_ms
        self.give_up_ms = self.until_ms + ANSWER_MS
        self.held_up: HeldUp | None = None
        """Why the last leader that was asked had nothing, although messages wait there."""

    @property
    def left_ms(self) -> int:
        return max(0, self.until_ms - self.call.site.node.clock.monotonic_ms())

    def note_why(self, answer: ReceiveMessagesResponse) -> None:
        for each in answer.partitions:
            self.held_up = self.held_up or held_up(each, is_fifo=self.queue.settings.is_fifo)

    def request(self, indexes: list[int], count: int, wait_ms: int) -> ReceiveMessagesRequest:
        return ReceiveMessagesRequest(self.queue.topic_id, indexes, count, BYTES_MAX, self.visibility_ms, wait_ms)


def receive(
    call: HttpCall,
    queue: Queue,
    count_max: int,
    wait_ms: int | None = None,
    visibility_ms: int | None = None,
    attempt: str = "",
) -> Steps[list[Received]]:
    """Raises HeldUp where there is nothing although messages wait."""
    settings = queue.settings
    asked = Asked(
        call,
        queue,
        count_max,
        settings.wait_ms if wait_ms is None else wait_ms,
        settings.visibility_ms if visibility_ms is None else visibility_ms,
    )
    waits = asked.left_ms > 0
    if call.connection.has_left(waits=waits):
        return []
    if attempt:
        again = yield from _again(asked, attempt)
        if again:
            return again
    taken = yield from _take(asked)
    if not taken.partitions and asked.held_up is not None:
        raise asked.held_up
    if taken.partitions and call.connection.has_left(waits=waits):
        taken.put_back()
        return []
    received_ms = call.site.node.clock.wall_ms()
    found: list[Received] = []
    try:
        for partition in taken.partitions:
            yield from _open(call, queue, partition, received_ms, found)
    except GeneratorExit:
        taken.put_back()
        raise
    if attempt and found:
        call.site.attempts.note((queue.topic_id, attempt), found, call.site.node.clock.monotonic_ms())
    return found


def _again(asked: Asked, attempt: str) -> Steps[list[Received]]:
    """What the same attempt got before, if nothing has happened to any of it."""
    call, queue = asked.call, asked.queue
    attempts, key = call.site.attempts, (queue.topic_id, attempt)
    received = attempts.find(key, call.site.node.clock.monotonic_ms())
    if received:
        action = Extend(max(1, asked.visibility_ms))
        refused = yield from settle(call, queue, [Ack(action=action, receipt=each.receipt) for each in received])
        if any(each is not None for each in refused):
            attempts.forget(key)
            return []
    return received


class Taken:
    """Partitions of answers, with what they have for this receive."""

    __slots__ = ("_asked", "_node_id", "partitions")

    def __init__(self, asked: Asked, node_id: int, partitions: list[Any]) -> None:
        self._asked = asked
        self._node_id = node_id
        self.partitions = partitions

    def put_back(self) -> None:
        """The client is gone."""
        if self.partitions:
            request = untake_request(self._asked.queue.topic_id, self.partitions)
            ask_as_node(self._asked.call, self._node_id, request, ANSWER_MS, lambda answer: None, CHANNEL)


def _take(asked: Asked) -> Steps[Taken]:
    call, queue = asked.call, asked.queue
    here = call.site.node.settings.node_id
    first = call.site.next_number()
    while True:
        asked.held_up = None
        try:
            turned = [(first + number) % queue.partitions for number in range(queue.partitions)]
            leaders = by_leader(call, queue, turned)
        except NoSuchQueue:
            if asked.left_ms:
                return Taken(asked, here, [])  # it was deleted while somebody waited
            raise
        unled = leaders.pop(NO_LEADER, None) is not None
        alone = list(leaders) == [here] and not unled
        for node_id, indexes in leaders.items():
            wait_ms = asked.left_ms if alone and not is_stopping(call) else 0
            answer = yield from _ask(asked, node_id, indexes, wait_ms)
            moved = answer is None or any(each.error_code in AGAIN for each in answer.partitions)
            unled |= moved
            if answer is None:
                continue
            if found := [each for each in answer.partitions if each.delivered]:
                return Taken(asked, node_id, found)
            _raise_first(answer, moved)
            asked.note_why(answer)
        if not asked.left_ms or is_stopping(call):
            if not unled:
                return Taken(asked, here, [])
            if call.site.node.clock.monotonic_ms() + RETRY_MS >= asked.give_up_ms or is_stopping(call):
                raise QueueUnavailable(f"nobody answers for {queue.key.name!r} now: retry")
            yield Question(sleep(call, RETRY_MS))
        elif unled:
            yield Question(sleep(call, RETRY_MS))
        elif not alone:
            yield from _await_notice(asked, leaders)


def _raise_first(answer: Any, moved: bool) -> None:
    for each in answer.partitions:
        if each.error_code and not moved:
            raise QueueUnavailable(each.error_message or "the queue cannot be read now")


def _ask(asked: Asked, node_id: int, indexes: list[int], wait_ms: int) -> Steps[ReceiveMessagesResponse | None]:
    asking = _Asking(asked, node_id, asked.request(indexes, asked.count, wait_ms), wait_ms)
    try:
        answer: ReceiveMessagesResponse | None = yield Question(asking.ask)
    except GeneratorExit:
        asking.give_up()
        raise
    return answer


class _Asking:
    """One question under way. If its client goes, so does the call that waits for it here; what comes from elsewhere is
    put back."""

    __slots__ = ("_answer", "_asked", "_gone", "_inner", "_node_id", "_request", "_wait_ms")

    def __init__(self, asked: Asked, node_id: int, request: ReceiveMessagesRequest, wait_ms: int) -> None:
        self._asked = asked
        self._node_id = node_id
        self._request = request
        self._wait_ms = wait_ms
        self._inner: LocalCall | None = None
        self._answer: ReceiveMessagesResponse | None = None
        """It is here; whoever asked may not have seen it yet."""
        self._gone = False

    def ask(self, respond: Callable[[Any], None]) -> None:
        def take(answer: Message | None) -> None:
            self._inner = None
            self._answer = _own(answer)
            if self._gone:
                self._put_back()
            else:
                respond(self._answer)

        call, timeout_ms = self._asked.call, self._wait_ms + ANSWER_MS
        inner = ask_as_node(call, self._node_id, self._request, timeout_ms, take, CHANNEL)
        if inner is not None and not inner.answered:
            self._inner = inner

    def give_up(self) -> None:
        self._gone = True
        if self._inner is not None:
            self._inner.give_up()
        self._put_back()

    def _put_back(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            Taken(self._asked, self._node_id, [each for each in answer.partitions if each.delivered]).put_back()


def _await_notice(asked: Asked, leaders: dict[int, list[int]]) -> Steps[None]:
    """Until one of them may have something, or the time is over."""
    notices = _Notices(asked)
    try:
        yield Question(partial(notices.ask, leaders))
    finally:
        notices.give_up()


class _Notices:
    __slots__ = ("_asked", "_inner", "_respond")

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._inner: LocalCall | None = None
        self._respond: Callable[[Any], None] | None = None

    def ask(self, leaders: dict[int, list[int]], respond: Callable[[Any], None]) -> None:
        call, left_ms = self._asked.call, self._asked.left_ms
        self._respond = respond
        here = call.site.node.settings.node_id
        poll_ms = left_ms
        for node_id, indexes in leaders.items():
            if self._respond is None:
                return
            if node_id == here:
                request = self._asked.request(indexes, 0, left_ms)
                inner = ask_as_node(call, node_id, request, left_ms + ANSWER_MS, self._fire)
                self._inner = inner if inner is not None and not inner.answered else None
                continue
            number = call.site.channels.take(node_id)
            if number is None:
                poll_ms = min(poll_ms, POLL_MS)
                continue
            wait_ms = min(left_ms, REMOTE_WAIT_MS_MAX)
            request = self._asked.request(indexes, 0, wait_ms)
            heard = partial(self._heard, node_id, number)
            ask_as_node(call, node_id, request, wait_ms + ANSWER_MS, heard, f"{CHANNEL}-{number}")
        node = call.site.node
        node.timers.at(node.clock.monotonic_ms() + poll_ms, lambda: self._fire(None))

    def _heard(self, node_id: int, number: int, answer: Message | None) -> None:
        self._asked.call.site.channels.give_back(node_id, number)
        if answer is None:
            node = self._asked.call.site.node
            node.timers.at(node.clock.monotonic_ms() + RETRY_MS, lambda: self._fire(None))
        else:
            self._fire(answer)

    def _fire(self, answer: Message | None) -> None:
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(None)

    def give_up(self) -> None:
        self._respond = None
        if self._inner is not None and not self._inner.answered:
            self._inner.give_up()


def _own(answer: Message | None) -> ReceiveMessagesResponse | None:
    """What another node sent is read over soon, so it is copied."""
    if not isinstance(answer, ReceiveMessagesResponse):
        return None
    for each in answer.partitions:
        if each.records is not None and not isinstance(each.records, FileSlice | bytes):
            each.records = bytes(each.records)
    return answer


# --- reading ---


def _open(call: HttpCall, queue: Queue, partition: Any, received_ms: int, found: list[Received]) -> Steps[None]:
    """The messages that were delivered, out of the batches around them."""
    counts: dict[int, tuple[int, int]] = {}
    times = iter(partition.first_received)
    for each in partition.delivered:
        for offset in range(each.first_offset, each.last_offset + 1):
            counts[offset] = each.delivery_count, next(times, received_ms)
    ids = ids_of(call)
    place = queue.topic_id, partition.partition_index
    for record in (yield from _records(call, place, partition.records, counts)):
        count, first_ms = counts[record.offset]
        found.append(
            Received(
                message_id=ids.message_id(queue.topic_id, partition.partition_index, record.offset),
                receipt=ids.receipt(queue.topic_id, partition.partition_index, record.offset, count, received_ms),
                body=record.value,
                key=record.key,
                headers=record.headers,
                partition=partition.partition_index,
                offset=record.offset,
                delivery_count=count,
                sent_ms=max(0, record.timestamp),
                first_received_ms=first_ms,
            )
        )


def _records(
    call: HttpCall, place: tuple[bytes, int], source: Buffer | FileSlice, wanted: dict[int, Any]
) -> Steps[list[Record]]:
    data: Buffer
    if not isinstance(source, FileSlice):
        data = source
    elif len(source) <= READ_AT_ONCE:
        data = source.read()
    else:
        data = yield Job(source.read)
    view, position = memoryview(data), 0
    found: list[Record] = []
    offsets = sorted(wanted)
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.size > len(view) - position:
            break
        at = bisect_left(offsets, header.base_offset)
        if at < len(offsets) and offsets[at] <= header.last_offset and not header.is_control:
            batch = view[position : position + header.size]
            key = (*place, header.base_offset, header.crc, header.size)
            known, bytes_max = call.site.opened.take(key), call.site.node.limits.decompressed_bytes_max
            picking = partial(_pick, known, batch, wanted, bytes_max)
            if header.codec == Codec.NONE and header.size <= READ_AT_ONCE:
                picked, opened = picking()
                yield None
            else:
                picked, opened = yield Job(picking)
            found += picked
            if opened is not None:
                call.site.opened.put(key, opened)
        position += header.size
    return found


def _pick(
    known: Opened | None, batch: memoryview, wanted: dict[int, Any], bytes_max: int
) -> tuple[list[Record], Opened | None]:
    """The records of a batch, and the batch as it is unpacked now."""
    try:
        opened = known or Opened(*open_batch(batch, decompressed_bytes_max=bytes_max), Bookmark())
        header = opened.header
        here = {offset for offset in wanted if header.base_offset <= offset <= header.last_offset}
        return list(pick_records(header, opened.payload, here, opened.bookmark)), opened
    except (CorruptMessage, InvalidRecord):
        return [], None  # nobody can read it; it is delivered again, and dead at last
