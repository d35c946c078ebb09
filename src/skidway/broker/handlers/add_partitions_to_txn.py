"""AddPartitionsToTxn (key 24), v0–v5: partitions become part of a transaction before anything is written there.

v0–v3: a client, about its one transaction. v4–v5: nodes, about many at once, for clients that let brokers do it
(Produce v12) and, with `verify_only`, for those that did it themselves: nothing is added then.
A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION, one of the broker's own topics
TOPIC_AUTHORIZATION_FAILED if a client names it, and then all others of the transaction OPERATION_NOT_ATTEMPTED. All
partitions of a transaction are added or none, and answered when that is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skidway.broker.api.admission import not_a_node
from skidway.broker.api.call import answer_later
from skidway.broker.api.fencing import code_of
from skidway.errors import ErrorCode, PolicyViolation, ProtocolError
from skidway.metadata.topic_names import is_internal
from skidway.steps import Steps
from skidway.transactions.operations import AddPartitions, VerifyPartitions
from skidway.transactions.transaction import Place
from skidway.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.wire.message import Message

BATCHED_SINCE = 4


@dataclass(slots=True, eq=False)
class _Asked:
    """One transaction of the request, and what is answered about it."""

    transaction: AddPartitionsToTxnTransaction
    places: dict[Place, ErrorCode] = field(default_factory=dict)
    """Each once. The codes count where `whole` is none."""
    whole: ErrorCode = ErrorCode.NONE
    """Of all partitions."""

    def refuse(self, code: ErrorCode) -> None:
        self.whole = code


def handle(node: Services, call: Call, request: AddPartitionsToTxnRequest) -> Steps[Message | None]:
    if call.version >= BATCHED_SINCE and not call.caller.is_node:
        return not_a_node(call)
    asked = [_Asked(transaction) for transaction in _transactions(call.version, request)]
    missing = len(asked)

    def answered() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            answer_later(node.world.slices, call, _response(call.version, asked))

    for each in asked:
        yield from _look_up(node, call.version, each)
        _ask(node, call, each, answered)
        yield None
    return None if asked else AddPartitionsToTxnResponse()


def _transactions(version: int, request: AddPartitionsToTxnRequest) -> list[AddPartitionsToTxnTransaction]:
    if version >= BATCHED_SINCE:
        return request.transactions
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return [only]


def _look_up(node: Services, version: int, asked: _Asked) -> Steps[None]:
    """Which partitions there are. If one cannot be added, no other is tried."""
    places, refused = asked.places, False
    for topic in asked.transaction.topics:
        partitions = node.topics.partition_count(topic.name) or 0
        is_closed = version < BATCHED_SINCE and is_internal(topic.name)
        for index in topic.partitions:
            if is_closed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                code = ErrorCode.NONE if 0 <= index < partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = refused or code != ErrorCode.NONE
            places[topic.name, index] = code
            yield None
        yield None
    if refused:
        asked.refuse(ErrorCode.OPERATION_NOT_ATTEMPTED)
    elif not asked.transaction.transactional_id:
        asked.refuse(ErrorCode.INVALID_REQUEST)
    elif len(places) > node.transactions.settings.partitions_max:
        asked.refuse(PolicyViolation.code)


def _ask(node: Services, call: Call, asked: _Asked, answered: Callable[[], None]) -> None:
    if asked.whole:
        answered()
        return
    transaction = asked.transaction
    key, places = transaction.transactional_id, list(asked.places)

    def answer(reply: list[ErrorCode] | ProtocolError | None) -> None:
        if isinstance(reply, ProtocolError):
            asked.refuse(code_of(reply, call.version))
        elif reply is not None:
            asked.places = dict(zip(places, reply, strict=True))
        answered()

    producer = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        node.transactions.submit(key, VerifyPartitions(key, *producer, places), call.now_ms, answer)
    else:
        is_one_of_many = call.version >= BATCHED_SINCE
        add = AddPartitions(key, *producer, places, bumps=is_one_of_many)
        if is_one_of_many:
            # The others in the request do not wait for it. The node asks again.
            node.transactions.submit(key, add, call.now_ms, answer)
        else:
            node.transactions.next.add(add, call.now_ms, answer)


def _response(version: int, asked: list[_Asked]) -> Steps[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for each in asked:
        result = AddPartitionsToTxnResult(each.transaction.transactional_id)
        for topic in each.transaction.topics:
            partitions = []
            for index in topic.partitions:
                code = each.places[topic.name, index] or each.whole
                partitions.append(AddPartitionsToTxnPartitionResult(index, code))
                yield None
            result.topic_results.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
            yield None
        response.results_by_transaction.append(result)
    if version < BATCHED_SINCE:
        (only,) = response.results_by_transaction
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=only.topic_results)
    return response
