"""OffsetFetch (key 9), v1–v10: where a group has come to. Up to v7 one group, from v8 several, from v10 by topic id.

No list of topics (v2+) means all that are committed. A group nobody knows has no offsets, which is no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def handle(node: Node, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    if call.version >= BATCHED_SINCE:
        return _handle_groups(node, call, request)
    asked = None
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]

    def answer(reply: Fetched) -> None:
        call.reply(_old_response(call.version, asked or [], reply))

    operation = FetchOffsets(request.group_id, asked, require_stable=request.require_stable)
    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


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


def _handle_groups(node: Node, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    response = OffsetFetchResponse()
    if not request.groups:
        return response
    missing = len(request.groups)

    def take(entry: OffsetFetchResponseGroup, reply: Fetched) -> None:
        nonlocal missing
        if isinstance(reply, ProtocolError):
            entry.error_code = reply.code
        else:
            _fill(node, call.version, entry, reply)
        missing -= 1
        if missing == 0:
            call.reply(response)

    for group in request.groups:
        entry = OffsetFetchResponseGroup(group.group_id)
        response.groups.append(entry)
        operation = FetchOffsets(
            group.group_id,
            _asked(node, call.version, group, entry),
            group.member_id,
            group.member_epoch,
            request.require_stable,
        )
        node.groups.submit(
            group.group_id,
            operation,
            call.now_ms,
            lambda reply, entry=entry: take(entry, reply),  # type: ignore[misc]
        )
    return None


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
