"""ReceiveMessages (key 30001), v0: messages of a queue, from partitions that this node leads.

Skidway's own: the door that a client of the queue uses may be on any of them. Answered as soon as there
are messages, or something went wrong in a partition, or the time is over. One that asks for 0 messages is answered when
there is one, and takes none. Where nothing was found although messages wait, the answer says why (`states.HeldUp`). Who
has closed its side of the connection gets nothing: it would be in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.queues.receiving import PARTITIONS_PER_STEP, Asked, Found, Receive
from skidway.steps import Steps
from skidway.wire.schema.receive_messages import (
    DeliveredPartition,
    DeliveredRange,
    ReceiveMessagesRequest,
    ReceiveMessagesResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

MESSAGES_MAX = 1_000
NO_RECORDS = b""


def handle(node: Services, call: Call, request: ReceiveMessagesRequest) -> Steps[ReceiveMessagesResponse | None]:
    if call.has_left():
        return ReceiveMessagesResponse()
    topic = node.image.topics_by_id.get(request.topic_id)
    asked = Asked(
        min(max(0, request.max_messages), MESSAGES_MAX),
        min(max(0, request.max_bytes), node.world.limits.fetch_bytes_max),
        max(0, request.visibility_ms),
        request.max_wait_ms,
    )

    def reply(found: dict[int, Found]) -> None:
        answer_later(node.world.slices, call, _response(found))

    receive = Receive(node.world, node.queues, asked, call, reply)
    yield from receive.begin(None if topic is None else topic.name, request.topic_id, request.partitions)
    return None


def _response(found: dict[int, Found]) -> Steps[ReceiveMessagesResponse]:
    response = ReceiveMessagesResponse()
    for number, (index, each) in enumerate(found.items(), 1):
        if not number % PARTITIONS_PER_STEP:
            yield None
        response.partitions.append(_partition(index, each))
    return response


def _partition(index: int, found: Found) -> DeliveredPartition:
    data = DeliveredPartition(index, records=NO_RECORDS)
    if found.error is not None:
        data.error_code, data.error_message = found.error.code, found.error.message
    data.held_up, data.start_offset = found.held_up, found.start_offset
    if found.taken is not None:
        data.records = found.taken.records
        data.delivered = [DeliveredRange(each.first, each.end - 1, each.count) for each in found.taken.acquired]
        data.first_received = found.taken.first_received_ms
    return data
