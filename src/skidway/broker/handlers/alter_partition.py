"""AlterPartition (key 56), v2–v3: a leader asks the controller to change who is in sync with it, or a broker to be
left out because its copy is damaged (then the set lacks the one who asks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.api.in_parts import ask_in_parts, nested_parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import AlterPartition, PartitionAlteration, PartitionAltered
from skidway.steps import Steps
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

EPOCHS_SINCE = 3
UNKNOWN_EPOCH = -1


def handle(node: Services, call: Call, request: AlterPartitionRequest) -> Steps[None]:
    """In parts: each partition is a change by itself, and says by its epochs what it is a change of."""
    response = AlterPartitionResponse()
    altered: list[tuple[bytes, list[PartitionAltered]]] = []

    def take(_: object, reply: list[tuple[bytes, list[PartitionAltered]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code = reply.code
        else:
            altered.extend(reply)

    def finish() -> Steps[AlterPartitionResponse]:
        for topic_id, results in altered if not response.error_code else ():
            if not response.topics or response.topics[-1].topic_id != topic_id:
                response.topics.append(ResponseTopicData(topic_id, []))
            for each in results:
                response.topics[-1].partitions.append(_result(each))
                yield None
        return response

    topics: list[tuple[bytes, list[PartitionAlteration]]] = []
    for topic in request.topics:
        asked: list[PartitionAlteration] = []
        topics.append((bytes(topic.topic_id), asked))
        for partition in topic.partitions:
            asked.append(_alteration(partition, call.version))
            yield None
    yield from ask_in_parts(
        lambda operation, answer: node.controller.commit(operation, call.now_ms, answer),
        (yield from nested_parts_of(topics)),
        lambda part: AlterPartition(request.broker_id, request.broker_epoch, part),
        take,
        lambda: answer_later(node.world.slices, call, finish()),
    )


def _alteration(asked: RequestPartitionData, version: int) -> PartitionAlteration:
    if version >= EPOCHS_SINCE:
        in_sync = [(broker.broker_id, broker.broker_epoch) for broker in asked.new_isr_with_epochs]
    else:
        in_sync = [(broker_id, UNKNOWN_EPOCH) for broker_id in asked.new_isr]
    return PartitionAlteration(
        asked.partition_index, asked.leader_epoch, asked.partition_epoch, in_sync, asked.leader_recovery_state
    )


def _result(altered: PartitionAltered) -> ResponsePartitionData:
    return ResponsePartitionData(
        altered.index,
        altered.error,
        altered.leader,
        altered.leader_epoch,
        altered.isr,
        altered.recovery_state,
        altered.partition_epoch,
    )
