"""OffsetFetch (key 9), v1–v10: where a group has come to. Up to v7 one group, from v8 several, from v10 by topic id.

No list of topics (v2+) means all that are committed. A group nobody knows has no offsets, which is no error.
What is said of one group was so at one moment, however many offsets it has: of many a copy is taken, and the reply is
made of that in steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from skidway.broker.api.call import answer_later
from skidway.broker.api.many_groups import ReplyRoom, ask_each
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.offsets import CopyOffsets, Offsets
from skidway.groups.operations import FetchedOffset, FetchOffsets
from skidway.runtime.replicated import Operation
from skidway.steps import Steps
from skidway.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

BATCHED_SINCE = 8
TOPIC_IDS_SINCE = 10
TOP_ERROR_SINCE = 2
PER_STEP = 10
COPIED_ABOVE = 500
"""Partitions of one group that a coordinator looks up in one go."""


class Asked:
    """What is asked about one group, and what its coordinator answered."""

    __slots__ = ("group_id", "operation", "reply")

    def __init__(self, operation: FetchOffsets) -> None:
        self.group_id = operation.group_id
        self.operation = operation
        self.reply: list[FetchedOffset] | Offsets | ProtocolError = []

    def question(self) -> Operation[Any]:
        partitions = self.operation.partitions
        if partitions is None or len(partitions) > COPIED_ABOVE:
            return CopyOffsets(self.operation)
        return self.operation

    def found(self, node: Services) -> Iterable[FetchedOffset]:
        if isinstance(self.reply, Offsets):
            return self.reply.fetch_each(self.operation, node.topics.id_of)
        assert not isinstance(self.reply, ProtocolError), "looked at before"
        return self.reply


def handle(node: Services, call: Call, request: OffsetFetchRequest) -> Steps[None]:
    if call.version >= BATCHED_SINCE:
        yield from _handle_groups(node, call, request)
        return
    asked: list[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = []
        for number, topic in enumerate(request.topics, 1):
            asked += [(topic.name, index) for index in topic.partition_indexes]
            if not number % PER_STEP:
                yield None
    one = Asked(FetchOffsets(request.group_id, asked, require_stable=request.require_stable))

    def answer(reply: list[FetchedOffset] | Offsets | ProtocolError) -> None:
        one.reply = reply
        answer_later(node.world.slices, call, _old_response(node, call.version, one))

    node.groups.submit(request.group_id, one.question(), call.now_ms, answer)


def _old_response(node: Services, version: int, one: Asked) -> Steps[OffsetFetchResponse]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    refusal = one.reply if isinstance(one.reply, ProtocolError) else None
    room = ReplyRoom(node)
    for number, found in enumerate(() if refusal is not None else one.found(node), 1):
        refusal = room.take(1, len(found.metadata))
        if refusal is not None:
            break
        _add_old(topics, found)
        if not number % PER_STEP:
            yield None
    if refusal is None:
        yield from _sort(topics.values(), one)
        return OffsetFetchResponse(topics=list(topics.values()))
    topics.clear()
    for topic, index in one.operation.partitions or ():
        _add_old(topics, FetchedOffset(topic, index, error=refusal.code))
        yield None
    response = OffsetFetchResponse(topics=list(topics.values()))
    if version >= TOP_ERROR_SINCE:
        response.error_code = refusal.code
    return response


def _add_old(topics: dict[str, OffsetFetchResponseTopic], found: FetchedOffset) -> None:
    topic = topics.get(found.topic)
    if topic is None:
        topic = topics[found.topic] = OffsetFetchResponseTopic(found.topic)
    topic.partitions.append(
        OffsetFetchResponsePartition(found.partition, found.offset, found.leader_epoch, found.metadata, found.error)
    )


def _sort(topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics], one: Asked) -> Steps[None]:
    """What was not asked for one by one is told in the order of partitions."""
    if one.operation.partitions is None:
        for topic in topics:
            topic.partitions.sort(key=attrgetter("partition_index"))
            yield None


def _handle_groups(node: Services, call: Call, request: OffsetFetchRequest) -> Steps[None]:
    response = OffsetFetchResponse()
    asked: list[Asked] = []
    for group in request.groups:
        entry = OffsetFetchResponseGroup(group.group_id)
        response.groups.append(entry)
        partitions = yield from _partitions(node, call.version, group, entry)
        operation = FetchOffsets(
            group.group_id, partitions, group.member_id, group.member_epoch, request.require_stable
        )
        asked.append(Asked(operation))
        yield None

    def take(one: Asked, reply: list[FetchedOffset] | Offsets | ProtocolError) -> None:
        one.reply = reply

    def finish() -> Steps[OffsetFetchResponse]:
        room = ReplyRoom(node)
        for entry, one in zip(response.groups, asked, strict=True):
            yield from _fill(node, call.version, entry, one, room)
            yield None
        return response

    yield from ask_each(node, asked, Asked.question, take, lambda: answer_later(node.world.slices, call, finish()))


def _partitions(
    node: Services, version: int, group: OffsetFetchRequestGroup, entry: OffsetFetchResponseGroup
) -> Steps[list[tuple[str, int]] | None]:
    """What to look up, None for all; topics that are not known by their id are answered at once."""
    if group.topics is None:
        return None
    asked: list[tuple[str, int]] = []
    for topic in group.topics:
        yield None
        name: str | None = topic.name
        if version >= TOPIC_IDS_SINCE:
            known = node.image.topics_by_id.get(topic.topic_id)
            name = None if known is None else known.name
        if name is not None:
            asked += [(name, index) for index in topic.partition_indexes]
            continue
        unknown = OffsetFetchResponseTopics(topic_id=topic.topic_id)
        entry.topics.append(unknown)
        for index in topic.partition_indexes:
            unknown.partitions.append(OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID))
            yield None
    return asked


def _fill(node: Services, version: int, entry: OffsetFetchResponseGroup, one: Asked, room: ReplyRoom) -> Steps[None]:
    topics: dict[str, OffsetFetchResponseTopics] = {}
    refusal = one.reply if isinstance(one.reply, ProtocolError) else None
    for found in () if refusal is not None else one.found(node):
        refusal = room.take(1, len(found.metadata))
        if refusal is not None:
            break
        answer = topics.get(found.topic)
        if answer is None:
            topic = node.image.topics.get(found.topic)
            if version >= TOPIC_IDS_SINCE and topic is None:
                continue  # deleted since: there is no way to name it
            answer = topics[found.topic] = OffsetFetchResponseTopics(found.topic)
            if topic is not None:
                answer.topic_id = topic.id
            entry.topics.append(answer)
        answer.partitions.append(
            OffsetFetchResponsePartitions(
                found.partition, found.offset, found.leader_epoch, found.metadata, found.error
            )
        )
        yield None
    yield from _sort(topics.values(), one)
    if refusal is not None:
        entry.error_code = refusal.code
        entry.topics.clear()
