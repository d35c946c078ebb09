"""What share groups want done about the states of their share-partitions: initialised and deleted, on whatever node.

Where a share-partition begins is found here, by the group's `share.auto.offset.reset`, and asked of the leader of each
partition with ListOffsets. It is stored with the state before the group hears of it. Every effect is answered, once and
in bounded time, with a code for each of its share-partitions; the group tries again what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from skidway.broker.coordinators.host import Coordinator
from skidway.broker.coordinators.share_states import ShareStates
from skidway.broker.partitions.partition import Partition
from skidway.broker.world import World
from skidway.errors import ErrorCode, NotCoordinator, ProtocolError
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.records import GroupRecord
from skidway.groups.share.operations import (
    BY_RESET,
    DeleteStates,
    InitializeStates,
    StateEffect,
    StateItem,
    StatesChanged,
)
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.group_configs import share_start
from skidway.metadata.image import Image
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Delete, Initialize, Question
from skidway.wire.message import Message
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CHANNEL = "share-starts"
TIMEOUT_MS = 3_000
TELL_AGAIN_MS = 1_000
LATEST, EARLIEST = -1, -2
"""Timestamps that are none, in Kafka's words."""
NO_OFFSET = -1
CONSUMER = -1

AskNode = Callable[[int, str, Message, int, int, Callable[[Message | None], None]], None]
"""(node, channel, request, now_ms, timeout_ms, respond): also of this node."""
Submit = Callable[[Any, StatesChanged, int, Callable[[Any], None]], None]
Found = dict[tuple[bytes, int], int | ErrorCode]
"""By topic id and partition: where to begin, or why nobody knows."""


class ShareWork:
    __slots__ = ("_ask", "_image", "_states", "_submit", "_world")

    def __init__(self, world: World, image: Image, states: ShareStates, ask: AskNode, submit: Submit) -> None:
        """`submit` tells the coordinator in a partition what became of an effect."""
        self._world = world
        self._image = image
        self._states = states
        self._ask = ask
        self._submit = submit

    def perform(self, coordinator: Coordinator[GroupCoordinator, GroupRecord], effect: StateEffect) -> None:
        def done(codes: list[ErrorCode]) -> None:
            self._tell(coordinator.partition, StatesChanged(effect.group_id, effect.number, codes))

        if isinstance(effect, DeleteStates):
            self._ask_all([Delete(_key(effect, item)) for item in effect.items], done)
            return
        unknown = [item for item in effect.items if item.start_offset == BY_RESET]
        start = share_start(self._image.config(ResourceType.GROUP, effect.group_id))
        timestamp = {"latest": LATEST, "earliest": EARLIEST}.get(start.strategy)
        if timestamp is None:
            timestamp = max(self._world.clock.wall_ms() - start.duration_ms, 0)
        self.find(unknown, timestamp, partial(self._initialize, effect, done))

    def _tell(self, partition: Partition, answer: StatesChanged) -> None:
        """Until it is written down: the group waits for it. Said twice, it does no harm."""

        def told(reply: ProtocolError | None) -> None:
            # Where the group has moved, its new coordinator has everything done again.
            if reply is not None and not isinstance(reply, NotCoordinator):
                at_ms = self._world.clock.monotonic_ms() + TELL_AGAIN_MS
                self._world.timers.at(at_ms, lambda: self._tell(partition, answer))

        self._submit(partition, answer, self._world.clock.monotonic_ms(), told)

    def _initialize(self, effect: InitializeStates, done: Callable[[list[ErrorCode]], None], found: Found) -> None:
        failed: dict[int, ErrorCode] = {}
        questions: list[Question] = []
        for number, item in enumerate(effect.items):
            start = item.start_offset
            if start == BY_RESET:
                told = found.get((item.topic_id, item.partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if isinstance(told, ErrorCode):
                    failed[number] = told
                    continue
                start = told
            questions.append(Initialize(_key(effect, item), effect.state_epoch, start))

        def answered(codes: list[ErrorCode]) -> None:
            given = iter(codes)
            done([failed[number] if number in failed else next(given) for number in range(len(effect.items))])

        self._ask_all(questions, answered)

    def _ask_all(self, questions: list[Question], done: Callable[[list[ErrorCode]], None]) -> None:
        codes = [ErrorCode.NONE] * len(questions)
        missing = len(questions) + 1  # this loop itself

        def answer(number: int, reply: Any) -> None:
            nonlocal missing
            if isinstance(reply, ProtocolError):
                codes[number] = reply.code
            missing -= 1
            if missing == 0:
                done(codes)

        now_ms = self._world.clock.monotonic_ms()
        for number, question in enumerate(questions):
            self._states.ask(question, now_ms, partial(answer, number))
        missing -= 1
        if missing == 0:
            done(codes)

    # --- where to begin ---

    def find(self, items: Iterable[StateItem], timestamp: int, done: Callable[[Found], None]) -> None:
        """The offset of the first record from a time on, or the edge that a timestamp stands for."""
        found: Found = {}
        places: dict[int, dict[bytes, list[int]]] = {}
        for item in items:
            topic = self._image.topics_by_id.get(item.topic_id)
            if topic is None or item.partition >= len(topic.partitions):
                found[item.topic_id, item.partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            leader = topic.partitions[item.partition].leader
            places.setdefault(leader, {}).setdefault(item.topic_id, []).append(item.partition)
        missing = len(places) + 1

        def answer(topics: dict[bytes, list[int]], response: Message | None) -> None:
            nonlocal missing
            found.update(self._offsets(topics, response))
            missing -= 1
            if missing == 0:
                self._on_found(found, timestamp, done)

        now_ms = self._world.clock.monotonic_ms()
        for leader, topics in places.items():
            entries = [
                ListOffsetsTopic(
                    self._image.topics_by_id[topic_id].name,
                    [ListOffsetsPartition(partition, timestamp=timestamp) for partition in partitions],
                )
                for topic_id, partitions in topics.items()
            ]
            request = ListOffsetsRequest(CONSUMER, topics=entries, timeout_ms=TIMEOUT_MS)
            self._ask(leader, CHANNEL, request, now_ms, TIMEOUT_MS, partial(answer, topics))
        answer({}, None)

    def _offsets(self, topics: dict[bytes, list[int]], response: Message | None) -> Found:
        answers: dict[tuple[str, int], int | ErrorCode] = {}
        if isinstance(response, ListOffsetsResponse):
            answers = {
                (topic.name, each.partition_index): each.offset if not each.error_code else _code(each.error_code)
                for topic in response.topics
                for each in topic.partitions
            }
        known = self._image.topics_by_id
        return {
            (topic_id, partition): answers.get((known[topic_id].name, partition), ErrorCode.NETWORK_EXCEPTION)
            if topic_id in known
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic_id, partitions in topics.items()
            for partition in partitions
        }

    def _on_found(self, found: Found, timestamp: int, done: Callable[[Found], None]) -> None:
        """No record is as young as was asked for: then the end it is, as in Kafka."""
        older = [StateItem(*place) for place, offset in found.items() if offset == NO_OFFSET]
        if older and timestamp >= 0:
            self.find(older, LATEST, lambda ends: done({**found, **ends}))
        else:
            done(found)


def _key(effect: StateEffect, item: StateItem) -> ShareKey:
    return ShareKey(effect.group_id, item.topic_id, item.partition)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
