"""DeleteShareGroupOffsets (key 92), v0: a share group without members forgets topics.

When somebody subscribes again, delivery begins where `share.auto.offset.reset` says. Answered when all of it is
deleted. NON_EMPTY_GROUP for the whole; UNKNOWN_TOPIC_OR_PARTITION one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, InvalidGroupId, ProtocolError
from skidway.groups.share.operations import DeleteShareOffsets
from skidway.steps import Steps
from skidway.wire.schema.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(
    node: Services, call: Call, request: DeleteShareGroupOffsetsRequest
) -> Steps[DeleteShareGroupOffsetsResponse | None]:
    if not request.group_id:
        return _refused(InvalidGroupId("The group id is empty."))
    response = DeleteShareGroupOffsetsResponse()
    results: dict[bytes, DeleteShareGroupOffsetsResponseTopic] = {}
    for topic in request.topics:
        yield None
        known = node.image.topics.get(topic.topic_name)
        result = DeleteShareGroupOffsetsResponseTopic(topic.topic_name, bytes(16) if known is None else known.id)
        response.responses.append(result)
        if known is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            results[known.id] = result

    def answer(reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(_refused(reply))
            return
        for result, code in zip(results.values(), reply, strict=True):
            result.error_code = code
        call.reply(response)

    operation = DeleteShareOffsets(request.group_id, list(results))
    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


def _refused(error: ProtocolError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
