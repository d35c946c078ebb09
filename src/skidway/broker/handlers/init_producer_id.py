"""InitProducerId (key 22), v0–v5: a producer id of its own for every idempotent producer; for a transactional id its
producer id in the next epoch, by its coordinator.

Without a transactional id no epoch is ever raised: a producer that asks again gets a new id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.fencing import INIT_PRODUCER_ID_SINCE, code_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.transactions.operations import InitProducer, Producer
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        return _init_transactional(node, call, request, request.transactional_id)

    def answer(producer_id: int | ProtocolError) -> None:
        if isinstance(producer_id, ProtocolError):
            call.reply(_refused(producer_id.code))
        else:
            call.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.producer_ids.take(call.now_ms, answer)
    return None


def _init_transactional(
    node: Services, call: Call, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse | None:
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)

    def answer(reply: Producer | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(_refused(code_of(reply, call.version, INIT_PRODUCER_ID_SINCE)))
        else:
            call.reply(InitProducerIdResponse(producer_id=reply.id, producer_epoch=reply.epoch))

    def init(failed: ProtocolError | None) -> None:
        if failed is not None:
            answer(failed)
            return
        asked = InitProducer(
            transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        )
        node.transactions.submit(transactional_id, asked, call.now_ms, answer)

    node.transactions.ids.when_filled(init)
    return None


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
