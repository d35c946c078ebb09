"""OffsetDelete (key 47), v0: forget offsets of a group, but none of a topic its members are subscribed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import DeleteOffsets
from skidway.steps import Steps
from skidway.wire.release import release
from skidway.wire.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: OffsetDeleteRequest) -> Steps[None]:
    response = OffsetDeleteResponse()
    asked: list[tuple[str, OffsetDeleteResponsePartition]] = []
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
                asked.append((topic.name, answer))
            yield None

    def take(part: list[tuple[str, OffsetDeleteResponsePartition]], reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code = reply.code
            return
        for (_, answer), code in zip(part, reply, strict=True):
            answer.error_code = code

    def done() -> None:
        given_up: list[OffsetDeleteResponseTopic] = []
        if response.error_code:
            given_up, response.topics = response.topics, given_up
        call.reply(response)
        node.world.slices.begin_unwatched(release(given_up))

    parts = yield from parts_of(asked)
    del asked  # or it would keep all parts until the last of them is answered
    yield from ask_in_parts(
        lambda operation, answer: node.groups.submit(request.group_id, operation, call.now_ms, answer),
        parts,
        lambda part: DeleteOffsets(request.group_id, [(name, answer.partition_index) for name, answer in part]),
        take,
        done,
    )
