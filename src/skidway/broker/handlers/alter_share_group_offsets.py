"""AlterShareGroupOffsets (key 91), v0: a share group without members is to begin at other offsets.

The group is made if it is not there. Every partition begins in a new state epoch: what leaders hold of it counts no
more, and they read again. Answered when all of it is stored. NON_EMPTY_GROUP for the whole; UNKNOWN_TOPIC_OR_PARTITION
one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, InvalidGroupId, PolicyViolation, ProtocolError
from skidway.groups.share.operations import AlterShareOffsets, StateItem
from skidway.shares.queue_groups import check_group
from skidway.steps import Steps
from skidway.wire.schema.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PARTITIONS_MAX = 10_000


def handle(
    node: Services, call: Call, request: AlterShareGroupOffsetsRequest
) -> Steps[AlterShareGroupOffsetsResponse | None]:
    response = AlterShareGroupOffsetsResponse()
    items: dict[tuple[bytes, int], StateItem] = {}
    results: list[AlterShareGroupOffsetsResponsePartition] = []
    for topic in request.topics:
        known = node.image.topics.get(topic.topic_name)
        topic_id, count = (bytes(16), 0) if known is None else (known.id, len(known.partitions))
        answers: list[AlterShareGroupOffsetsResponsePartition] = []
        response.responses.append(AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, answers))
        for asked in topic.partitions:
            yield None
            result = AlterShareGroupOffsetsResponsePartition(asked.partition_index)
            answers.append(result)
            place = topic_id, asked.partition_index
            if not 0 <= asked.partition_index < count:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.start_offset < 0 or place in items:
                result.error_code = ErrorCode.INVALID_REQUEST
            else:
                items[place] = StateItem(*place, asked.start_offset)
                results.append(result)
    if not request.group_id:
        return _refused(InvalidGroupId("The group id is empty."))
    try:
        check_group(request.group_id)
    except InvalidGroupId as error:
        return _refused(error)
    if len(items) > PARTITIONS_MAX:
        return _refused(PolicyViolation(f"more than {PARTITIONS_MAX} partitions in one request"))
    if request.topics and not items:
        return response

    def answer(reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(_refused(reply))
            return
        for result, code in zip(results, reply, strict=True):
            result.error_code = code
        call.reply(response)

    operation = AlterShareOffsets(request.group_id, list(items.values()))
    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


def _refused(error: ProtocolError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
