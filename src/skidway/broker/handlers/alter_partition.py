"""AlterPartition (key 56), v2–v3: a leader asks the controller to change who is in sync with it, or a broker to be
left out because its copy is damaged (then the set lacks the one who asks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import AlterPartition, PartitionAlteration, PartitionAltered
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

EPOCHS_SINCE = 3
UNKNOWN_EPOCH = -1


def handle(node: Node, call: Call, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
    def answer(reply: list[tuple[bytes, list[PartitionAltered]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(AlterPartitionResponse(error_code=reply.code))
            return
        topics = [ResponseTopicData(topic_id, [_result(altered) for altered in each]) for topic_id, each in reply]
        call.reply(AlterPartitionResponse(topics=topics))

    topics = [
        (bytes(topic.topic_id), [_alteration(partition, call.version) for partition in topic.partitions])
        for topic in request.topics
    ]
    node.decide(AlterPartition(request.broker_id, request.broker_epoch, topics), call.now_ms, answer)
    return None


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
