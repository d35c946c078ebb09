"""SendMessages (key 30004), v0: messages for partitions of a FIFO queue that this node leads.

Skidway's own. Each partition is answered by itself, all when what they hold is committed. A message
whose id was sent within five minutes is answered with the place of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skidway.broker.partitions.partition import Partition
from skidway.errors import ProtocolError, StorageError
from skidway.steps import Steps
from skidway.wire.schema.send_messages import (
    SendMessagesRequest,
    SendMessagesResponse,
    SentMessage,
    SentPartition,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

BY_GROUP = "messageGroup"


def handle(node: Services, call: Call, request: SendMessagesRequest) -> Steps[SendMessagesResponse | None]:
    # The request's buffer is read into again before all is appended.
    given = [(each.partition_index, bytes(each.records or b"")) for each in request.partitions]  # type: ignore[arg-type]
    response = SendMessagesResponse()
    waiting: dict[Partition, SentPartition] = {}
    ends: dict[Partition, int] = {}
    for index, batch in given:
        yield None
        data = SentPartition(index)
        response.partitions.append(data)
        partition: Partition | None = None
        try:
            partition = node.partitions.find_by_id(request.topic_id, index)
            by_group = node.hosting.topic_settings.queue(partition.topic).deduplication_scope == BY_GROUP
            places = yield from node.queues.sends.send(partition, batch, by_group)
        except ProtocolError as error:
            if isinstance(error, StorageError) and partition is not None:
                node.room.on_refused(partition, error)
            data.error_code, data.error_message = error.code, error.message
            continue
        data.messages = [SentMessage(*place) for place in places]
        end = max((place.offset for place in places), default=-1) + 1
        if end > partition.log.high_watermark:
            ends[partition], waiting[partition] = end, data
    if not ends:
        return response
    _reply_when_committed(node, call, request, response, waiting, ends)
    return None


def _reply_when_committed(
    node: Services,
    call: Call,
    request: SendMessagesRequest,
    response: SendMessagesResponse,
    waiting: Mapping[Partition, SentPartition],
    ends: Mapping[Partition, int],
) -> None:
    def answer(failed: Mapping[Partition, ProtocolError]) -> None:
        for partition, error in failed.items():
            data = waiting[partition]
            data.error_code, data.error_message, data.messages = error.code, error.message, []
        call.reply(response)

    parked = node.waiting.acknowledgements.park(dict(ends), call.now_ms + max(1, request.timeout_ms), answer)
    call.on_gone = lambda: node.waiting.acknowledgements.cancel(parked)
