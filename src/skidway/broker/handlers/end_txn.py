"""EndTxn (key 26), v0–v5: a transaction is committed or aborted.

Answered when it is certain how it ends, not when the markers are written: readers see a commit a little later. From v5
on a producer's epoch grows at every end, and the answer has the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.fencing import code_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.transactions.operations import EndTransaction, Producer
from skidway.wire.schema.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

BUMPS_SINCE = 5


def handle(node: Services, call: Call, request: EndTxnRequest) -> EndTxnResponse | None:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(reply: Producer | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(EndTxnResponse(error_code=code_of(reply, call.version)))
        else:
            call.reply(EndTxnResponse(producer_id=reply.id, producer_epoch=reply.epoch))

    asked = EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        bumps=call.version >= BUMPS_SINCE,
    )
    node.transactions.submit(request.transactional_id, asked, call.now_ms, answer)
    return None
