"""AddOffsetsToTxn (key 25), v0–v4: a group's offsets are about to be committed in a transaction.

The partition that the group is kept in becomes part of the transaction. Its topic is created if there is none yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.fencing import code_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.transactions.operations import AddPartitions
from skidway.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    key = request.transactional_id
    if not key:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(reply: ProtocolError | None) -> None:
        code = ErrorCode.NONE if reply is None else code_of(reply, call.version)
        call.reply(AddOffsetsToTxnResponse(error_code=code))

    def add(failed: ProtocolError | None) -> None:
        if failed is not None:
            answer(failed)
            return
        kind = node.groups.kind
        partitions = node.topics.partition_count(kind.topic)
        if partitions is None:
            call.reply(AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        place = kind.topic, kind.place(request.group_id, partitions)
        asked = AddPartitions(key, request.producer_id, request.producer_epoch, [place])
        node.transactions.next.add(asked, call.now_ms, answer)

    node.groups.prepare(call.now_ms, add)
    return None
