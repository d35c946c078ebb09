"""AllocateProducerIds (key 67), v0: a block of producer ids that nobody was given before, for one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.operations import AllocateProducerIds, ProducerIdBlock
from skidway.wire.schema.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse | None:
    def answer(reply: ProducerIdBlock | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(AllocateProducerIdsResponse(error_code=reply.code))
        else:
            call.reply(AllocateProducerIdsResponse(producer_id_start=reply.first, producer_id_len=reply.count))

    if request.broker_epoch < 0 and not call.caller.is_this_node:
        # Only this very node need not be registered, when it is all there is.
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    node.controller.commit(AllocateProducerIds(request.broker_id, request.broker_epoch), call.now_ms, answer)
    return None
