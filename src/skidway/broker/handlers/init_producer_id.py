"""InitProducerId (key 22), v0–v5: a producer id of its own for every idempotent producer.

Not served: transactional ids, and so no epoch is ever raised here: a producer that asks again gets a new id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        # Of all refusals the one every client takes for final. Most learn from FindCoordinator what is the matter.
        final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        code = final if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)

    def answer(producer_id: int | ProtocolError) -> None:
        if isinstance(producer_id, ProtocolError):
            call.reply(InitProducerIdResponse(error_code=producer_id.code, producer_epoch=-1))
        else:
            call.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.producer_ids.take(call.now_ms, answer)
    return None
