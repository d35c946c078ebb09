"""DescribeTransactions (key 65), v0: state, producer and partitions of transactional ids, each by its coordinator.

Of a transaction that is ending only the partitions that have no marker yet. Each id is answered once, and all of them
together with a bounded number of partitions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skidway.broker.api.many_groups import ReplyRoom, each_once
from skidway.errors import ErrorCode, ProtocolError
from skidway.steps import Steps
from skidway.transactions.operations import DescribeTransaction, Description
from skidway.wire.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(
    node: Services, call: Call, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse | None]:
    response = DescribeTransactionsResponse()
    room = ReplyRoom(node)
    missing = 1  # this loop itself

    def answer(entry: TransactionState, reply: Description | ProtocolError) -> None:
        if not isinstance(reply, ProtocolError):
            reply = room.take(len(reply.places), 0) or reply
        _fill(entry, reply)
        done()

    def done() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            call.reply(response)

    for key in each_once(request.transactional_ids):
        entry = TransactionState(transactional_id=key)
        response.transaction_states.append(entry)
        missing += 1
        now_ms = node.world.clock.monotonic_ms()
        if key:
            node.transactions.submit(key, DescribeTransaction(key), now_ms, partial(answer, entry))
        else:
            entry.error_code = ErrorCode.INVALID_REQUEST
            done()
        yield None
    done()
    return None


def _fill(entry: TransactionState, reply: Description | ProtocolError) -> None:
    if isinstance(reply, ProtocolError):
        entry.error_code = reply.code
        return
    entry.transaction_state = reply.state
    entry.transaction_timeout_ms = reply.timeout_ms
    entry.transaction_start_time_ms = reply.started_ms
    entry.producer_id, entry.producer_epoch = reply.producer_id, reply.epoch
    topics: dict[str, list[int]] = {}
    for topic, index in reply.places:
        topics.setdefault(topic, []).append(index)
    entry.topics = [TopicData(topic, indexes) for topic, indexes in topics.items()]
