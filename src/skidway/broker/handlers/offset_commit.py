"""OffsetCommit (key 8), v2–v10: how far a group has come. Answered when it is committed; from v10 by topic id.

A topic or partition that does not exist is refused by itself; the others are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import CommitOffsets, OffsetToCommit
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

TOPIC_IDS_SINCE = 10


def handle(node: Node, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    response = OffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    waiting: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        entry = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        response.topics.append(entry)
        name, missing = _name_of(node, call.version, topic)
        count = 0 if name is None else len(node.image.topics[name].partitions)
        for asked in topic.partitions:
            answer = OffsetCommitResponsePartition(asked.partition_index, ErrorCode.NONE)
            entry.partitions.append(answer)
            if name is None:
                answer.error_code = missing
            elif not 0 <= asked.partition_index < count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                waiting.append(answer)
                offsets.append(
                    OffsetToCommit(
                        name,
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata or "",
                    )
                )
    if request.topics and not offsets:
        return response

    def answer_all(reply: list[ErrorCode] | ProtocolError) -> None:
        codes = [reply.code] * len(waiting) if isinstance(reply, ProtocolError) else reply
        for answer, code in zip(waiting, codes, strict=True):
            answer.error_code = code
        call.reply(response)

    operation = CommitOffsets(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )
    node.groups.submit(request.group_id, operation, call.now_ms, answer_all)
    return None


def _name_of(node: Node, version: int, topic: OffsetCommitRequestTopic) -> tuple[str | None, ErrorCode]:
    if version >= TOPIC_IDS_SINCE:
        known = node.image.topics_by_id.get(topic.topic_id)
        return (None if known is None else known.name), ErrorCode.UNKNOWN_TOPIC_ID
    return (topic.name if topic.name in node.image.topics else None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
