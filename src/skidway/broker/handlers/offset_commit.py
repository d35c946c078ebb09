"""OffsetCommit (key 8), v2–v10: how far a group has come. Answered when it is committed; from v10 by topic id.

A topic or partition that does not exist is refused by itself; so is one with too much metadata. All the others are
committed by one record batch, or none of them: InvalidCommitOffsetSize where it would be too large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.coordinators.groups import commit
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import CommitOffsets, OffsetToCommit
from skidway.steps import Steps
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

TOPIC_IDS_SINCE = 10


def handle(node: Services, call: Call, request: OffsetCommitRequest) -> Steps[OffsetCommitResponse | None]:
    response = OffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    answers: list[OffsetCommitResponsePartition] = []
    """To each of the offsets."""
    for topic in request.topics:
        entry = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        response.topics.append(entry)
        name, missing = _name_of(node, call.version, topic)
        count = 0 if name is None else len(node.image.topics[name].partitions)
        for partition in topic.partitions:
            answered = OffsetCommitResponsePartition(partition.partition_index, ErrorCode.NONE)
            entry.partitions.append(answered)
            if name is None:
                answered.error_code = missing
            elif not 0 <= partition.partition_index < count:
                answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets.append(_to_commit(name, partition))
                answers.append(answered)
            yield None
    if request.topics and not offsets:
        return response

    def finish(reply: list[ErrorCode] | ProtocolError) -> Steps[OffsetCommitResponse]:
        codes = [reply.code] * len(answers) if isinstance(reply, ProtocolError) else reply
        for answered, code in zip(answers, codes, strict=True):
            answered.error_code = code
            yield None
        return response

    operation = CommitOffsets(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )
    yield from commit(
        node.groups,
        node.topics,
        operation,
        call.now_ms,
        lambda reply: answer_later(node.world.slices, call, finish(reply)),
    )
    return None


def _to_commit(topic: str, asked: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic,
        asked.partition_index,
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
    )


def _name_of(node: Services, version: int, topic: OffsetCommitRequestTopic) -> tuple[str | None, ErrorCode]:
    if version >= TOPIC_IDS_SINCE:
        known = node.image.topics_by_id.get(topic.topic_id)
        return (None if known is None else known.name), ErrorCode.UNKNOWN_TOPIC_ID
    return (topic.name if topic.name in node.image.topics else None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
