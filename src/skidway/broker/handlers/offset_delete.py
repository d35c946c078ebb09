"""OffsetDelete (key 47), v0: forget offsets of a group, but none of a topic its members are subscribed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import DeleteOffsets
from skidway.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: OffsetDeleteRequest) -> None:
    response = OffsetDeleteResponse()
    asked: list[tuple[str, int]] = []
    waiting: list[OffsetDeleteResponsePartition] = []
    for topic in request.topics:
        entry = OffsetDeleteResponseTopic(topic.name)
        response.topics.append(entry)
        known = node.image.topics.get(topic.name)
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition.partition_index)
            entry.partitions.append(answer)
            if known is None or not 0 <= partition.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                asked.append((topic.name, partition.partition_index))
                waiting.append(answer)

    def answer_all(reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(OffsetDeleteResponse(error_code=reply.code))
            return
        for answer, code in zip(waiting, reply, strict=True):
            answer.error_code = code
        call.reply(response)

    node.groups.submit(request.group_id, DeleteOffsets(request.group_id, asked), call.now_ms, answer_all)
