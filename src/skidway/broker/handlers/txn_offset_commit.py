"""TxnOffsetCommit (key 28), v0–v6: how far a group has come, within a producer's transaction. From v6 by topic id.

Answered when it is written and committed; the offsets count when the transaction is. Up to v4 the producer has added
the group's partition to its transaction (AddOffsetsToTxn), and that is verified; from v5 on it is added here. Member,
generation and instance (v3+) are checked if any of them is given. Topics and partitions are refused as by OffsetCommit.

Of what the transaction's coordinator refuses older clients hear what they know: INVALID_TXN_STATE up to v3,
INVALID_PRODUCER_EPOCH for a fenced producer, and COORDINATOR_LOAD_IN_PROGRESS where the coordinator did not answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.coordinators.offset_transactions import OffsetTransactions
from skidway.broker.handlers.offset_commit import fill_in_and_reply, offsets_to_commit
from skidway.errors import ErrorCode
from skidway.groups.operations import CommitOffsetsInTransaction
from skidway.runtime.log_store import Producer
from skidway.steps import Steps
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
ADDS_SINCE = 5
TOPIC_IDS_SINCE = 6


def handle(node: Services, call: Call, request: TxnOffsetCommitRequest) -> Steps[TxnOffsetCommitResponse | None]:
    response = TxnOffsetCommitResponse()
    offsets, answers = yield from offsets_to_commit(
        node.image,
        request.topics,
        call.version >= TOPIC_IDS_SINCE,
        lambda *topic: response.topics.append(TxnOffsetCommitResponseTopic(*topic)),
        TxnOffsetCommitResponsePartition,
    )
    if not offsets:
        return response

    def respond(reply: list[ErrorCode] | ErrorCode) -> None:
        codes = reply if isinstance(reply, list) else [_code(reply, call.version)] * len(answers)
        fill_in_and_reply(node, call, response, answers, codes)

    producer = Producer(request.producer_id, request.producer_epoch)
    operation = CommitOffsetsInTransaction(
        request.group_id,
        offsets,
        producer,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        call.version,
    )
    offset_transactions = OffsetTransactions(
        node.groups, node.questions, node.waiting, request.transactional_id, producer, call.version >= ADDS_SINCE
    )
    yield from offset_transactions.commit(node.topics, operation, call.now_ms, respond)
    return None


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """What a producer of this version understands."""
    match code:
        case ErrorCode.TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.THROTTLING_QUOTA_EXCEEDED | ErrorCode.NOT_ENOUGH_REPLICAS:
            # Too much is remembered or waits here; producers expect no such code from a coordinator.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.NETWORK_EXCEPTION | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Older producers crash when they hear that something is loading (KAFKA-7296).
            is_known = version >= LOADING_SINCE
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_known else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
