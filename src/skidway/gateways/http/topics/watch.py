"""Several partitions of a topic watched at once: what comes in any of them, as it comes.

Each leader has one fetch for all watched partitions that it leads. What it sends is given out once and not asked for
again before `advance` says how far it was read, so a watch holds at most one answer of each leader. A partition whose
leader is not known is asked about again and again. A topic that is deleted ends the watch, also if there is a new one
of its name: its offsets mean other records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from skidway.broker.api.call import LocalCall
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.leaders import CHANNEL, MOVED, RETRY_MS, ask_node, find_topic, leader_of
from skidway.gateways.http.topics.records import (
    ANSWER_MS,
    POLL_MS,
    READ_COMMITTED,
    REMOTE_WAIT_MS_MAX,
    Read,
    is_stopping,
    read_of,
)
from skidway.limits import KIB
from skidway.metadata.image import NO_LEADER, Topic
from skidway.ports import FileSlice
from skidway.runtime.timers import Timer
from skidway.steps import Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

PARTITIONS_MAX = 256
"""Of one watch: each event of a stream names them all."""
BYTES_AT_ONCE = 256 * KIB
WAIT_MS = 15_000

Found = list[tuple[int, Read]]


class Watch:
    def __init__(self, call: HttpCall, topic: Topic, positions: dict[int, int], *, whole: bool = False) -> None:
        """`whole`: partitions that the topic gets later are watched from their beginning."""
        self._call = call
        self._topic = topic.name
        self._topic_id = topic.id
        self._whole = whole
        self.positions = positions
        """What to read next, by partition. Those that were read last come last, so that all have their turn."""
        self._busy: set[int] = set()
        """Asked about, or given out."""
        self._again_ms: dict[int, int] = {}
        """Not to be asked about earlier."""
        self._under_way: dict[int, LocalCall | None] = {}
        """By leader. None: another node is asked."""
        self._arrived: list[PartitionData] = []
        self._waker: Callable[[Any], None] | None = None
        self._timer: Timer | None = None
        self._closed = False

    def next(self, wait_ms: int) -> Steps[Found]:
        """What came, or nothing after the time. Without time it waits for an answer of each leader that there is.
        Raises Problem."""
        node = self._call.site.node
        until_ms = node.clock.monotonic_ms() + (wait_ms or ANSWER_MS)
        asks = True
        while True:
            if self._arrived and (wait_ms or not self._under_way):
                return self._take_arrived()
            now_ms = node.clock.monotonic_ms()
            if now_ms >= until_ms or is_stopping(self._call):
                return []
            next_ms = self._ask(now_ms, wait_ms) if asks else until_ms
            asks = bool(wait_ms)
            if not asks and not self._under_way and not self._arrived:
                return []
            yield Question(partial(self._wait, min(until_ms, next_ms)))

    def advance(self, index: int, offset: int) -> None:
        """What was given out of this partition is read up to the offset."""
        self._busy.discard(index)
        del self.positions[index]
        self.positions[index] = offset

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for inner in self._under_way.values():
            if inner is not None and not inner.answered:
                inner.give_up()

    # --- asking ---

    def _ask(self, now_ms: int, wait_ms: int) -> int:
        """Ask every leader that is not asked already; when to look again."""
        topic = self._find()
        next_ms = now_ms + WAIT_MS
        by_leader: dict[int, list[int]] = {}
        for index in self.positions:
            if index in self._busy:
                continue
            again_ms = self._again_ms.get(index, now_ms)
            if again_ms > now_ms:
                next_ms = min(next_ms, again_ms)
                continue
            leader = leader_of(self._call, topic, index)
            if leader == NO_LEADER:
                self._again_ms[index] = now_ms + RETRY_MS
                next_ms = min(next_ms, now_ms + RETRY_MS)
            elif leader not in self._under_way:
                by_leader.setdefault(leader, []).append(index)
        for leader, indexes in by_leader.items():
            self._fetch(leader, indexes, min(wait_ms, WAIT_MS))
        return next_ms

    def _find(self) -> Topic:
        topic = find_topic(self._call, self._topic)
        if topic.id != self._topic_id:
            raise Problem(404, "no_such_topic", f"the topic {self._topic} was deleted; another one has its name now")
        if self._whole:
            for partition in topic.partitions:
                if partition.index not in self.positions and len(self.positions) < PARTITIONS_MAX:
                    self.positions[partition.index] = 0
        return topic

    def _fetch(self, leader: int, indexes: list[int], wait_ms: int) -> None:
        channels, channel, number = self._call.site.channels, CHANNEL, None
        wanted_ms, asked_ms = wait_ms, self._call.site.node.clock.monotonic_ms()
        if leader != self._call.site.node.settings.node_id and wait_ms:
            number = channels.take(leader)
            channel = CHANNEL if number is None else f"{CHANNEL}-{number}"
            wait_ms = 0 if number is None else min(wait_ms, REMOTE_WAIT_MS_MAX)
        partitions = [
            FetchPartition(index, fetch_offset=self.positions[index], partition_max_bytes=BYTES_AT_ONCE)
            for index in indexes
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=BYTES_AT_ONCE,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(self._topic, self._topic_id, partitions)],
        )
        self._busy.update(indexes)
        self._under_way[leader] = None

        def take(answer: Message | None) -> None:
            if number is not None:
                channels.give_back(leader, number)
            if not self._closed:
                del self._under_way[leader]
                self._on_answer(indexes, answer, self._pause_ms(wanted_ms, wait_ms, asked_ms))

        inner = ask_node(self._call, leader, request, wait_ms + ANSWER_MS, take, channel)
        if inner is not None and not inner.answered:
            self._under_way[leader] = inner

    def _pause_ms(self, wanted_ms: int, wait_ms: int, asked_ms: int) -> int:
        """Before a partition is asked about again that has nothing: a leader that does not wait is not asked without
        end."""
        if wanted_ms and not wait_ms:
            return POLL_MS
        waited_ms = self._call.site.node.clock.monotonic_ms() - asked_ms
        return RETRY_MS if waited_ms < wait_ms // 2 else 0

    def _on_answer(self, indexes: list[int], answer: Message | None, pause_ms: int) -> None:
        now_ms = self._call.site.node.clock.monotonic_ms()
        told: dict[int, PartitionData] = {}
        if isinstance(answer, FetchResponse) and not answer.error_code and answer.responses:
            told = {data.partition_index: data for data in answer.responses[0].partitions}
        if any(data.records is not None and len(data.records) for data in told.values()):
            pause_ms = 0
        for index in indexes:
            data = told.get(index)
            if data is None or data.error_code in MOVED:
                self._again_ms[index] = now_ms + RETRY_MS
                self._busy.discard(index)
            elif data.error_code or (data.records is not None and len(data.records)):
                if data.records is not None and not isinstance(data.records, FileSlice | bytes):
                    data.records = bytes(data.records)  # what another node sent is read over soon
                self._again_ms.pop(index, None)
                self._arrived.append(data)
            else:
                self._again_ms[index] = now_ms + pause_ms
                self._busy.discard(index)
        self._wake(None)

    def _take_arrived(self) -> Found:
        arrived, self._arrived = self._arrived, []
        for data in arrived:
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                where = f"{data.partition_index}:{self.positions[data.partition_index]}"
                raise Problem(422, "offset_out_of_range", f"there are no records at {where} of {self._topic}")
        return [(data.partition_index, read_of(data)) for data in arrived]

    # --- waiting ---

    def _wait(self, until_ms: int, respond: Callable[[Any], None]) -> None:
        if self._arrived and not self._under_way:
            respond(None)
            return
        self._waker = respond
        self._timer = self._call.site.node.timers.at(until_ms, partial(self._wake, None))

    def _wake(self, _: None) -> None:
        waker, self._waker = self._waker, None
        if waker is not None:
            assert self._timer is not None
            self._timer.cancel()
            waker(None)
