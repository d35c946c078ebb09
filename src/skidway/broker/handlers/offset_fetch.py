"""OffsetFetch (key 9), v1–v10: where a group has come to. Up to v7 one group, from v8 several, from v10 by topic id.

No list of topics (v2+) means all that are committed. A group nobody knows has no offsets, which is no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.many_groups import ReplyRoom, ask_each
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import FetchedOffset, FetchOffsets
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
    from skidway.broker.call import Call
    from skidway.broker.node import Node

BATCHED_SINCE = 8
TOPIC_IDS_SINCE = 10
TOP_ERROR_SINCE = 2
Fetched = list[FetchedOffset] | ProtocolError
Asked = tuple[OffsetFetchRequestGroup, OffsetFetchResponseGroup]


def handle(node: Node, call: Call, request: OffsetFetchRequest) -> None:
    if call.version >= BATCHED_SINCE:
        _handle_groups(node, call, request)
        return
    asked = None
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]

    def answer(reply: Fetched) -> None:
        reply = _within(ReplyRoom(node), reply)
        call.reply(_old_response(call.version, asked or [], reply))

    operation = FetchOffsets(request.group_id, asked, require_stable=request.require_stable)
    node.groups.submit(request.group_id, operation, call.now_ms, answer)


def _within(room: ReplyRoom, reply: Fetched) -> Fetched:
    if isinstance(reply, ProtocolError):
        return reply
    return room.take(len(reply), sum(len(one.metadata) for one in reply)) or reply


def _old_response(version: int, asked: list[tuple[str, int]], reply: Fetched) -> OffsetFetchResponse:
    response = OffsetFetchResponse()
    if isinstance(reply, ProtocolError):
        if version >= TOP_ERROR_SINCE:
            response.error_code = reply.code
        reply = [FetchedOffset(topic, index, error=reply.code) for topic, index in asked]
    for topic, found in _by_topic(reply).items():
        partitions = [
            OffsetFetchResponsePartition(one.partition, one.offset, one.leader_epoch, one.metadata, one.error)
            for one in found
        ]
        response.topics.append(OffsetFetchResponseTopic(topic, partitions))
    return response


def _handle_groups(node: Node, call: Call, request: OffsetFetchRequest) -> None:
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id) for group in request.groups])
    room = ReplyRoom(node)

    def ask(pair: Asked) -> FetchOffsets:
        group, entry = pair
        asked = _asked(node, call.version, group, entry)
        return FetchOffsets(group.group_id, asked, group.member_id, group.member_epoch, request.require_stable)

    def take(pair: Asked, reply: Fetched) -> None:
        entry = pair[1]
        reply = _within(room, reply)
        if isinstance(reply, ProtocolError):
            entry.error_code = reply.code
        else:
            _fill(node, call.version, entry, reply)

    pairs = [(group.group_id, (group, entry)) for group, entry in zip(request.groups, response.groups, strict=True)]
    ask_each(node, call, pairs, ask, take, lambda: call.reply(response))


def _asked(
    node: Node, version: int, group: OffsetFetchRequestGroup, entry: OffsetFetchResponseGroup
) -> list[tuple[str, int]] | None:
    """What to look up; topics that are not known by their id are answered at once."""
    if group.topics is None:
        return None
    asked: list[tuple[str, int]] = []
    for topic in group.topics:
        name: str | None = topic.name
        if version >= TOPIC_IDS_SINCE:
            known = node.image.topics_by_id.get(topic.topic_id)
            name = None if known is None else known.name
        if name is None:
            unknown = [
                OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for index in topic.partition_indexes
            ]
            entry.topics.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=unknown))
        else:
            asked += [(name, index) for index in topic.partition_indexes]
    return asked


def _fill(node: Node, version: int, entry: OffsetFetchResponseGroup, reply: list[FetchedOffset]) -> None:
    for name, found in _by_topic(reply).items():
        topic = node.image.topics.get(name)
        if version >= TOPIC_IDS_SINCE and topic is None:
            continue  # deleted since: there is no way to name it
        partitions = [
            OffsetFetchResponsePartitions(one.partition, one.offset, one.leader_epoch, one.metadata, one.error)
            for one in found
        ]
        answer = OffsetFetchResponseTopics(name, partitions=partitions)
        if topic is not None:
            answer.topic_id = topic.id
        entry.topics.append(answer)


def _by_topic(found: list[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for one in found:
        topics.setdefault(one.topic, []).append(one)
    return topics
