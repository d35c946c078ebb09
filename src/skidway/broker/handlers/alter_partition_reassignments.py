"""AlterPartitionReassignments (key 45), v0–v1: replicas to other brokers, or an end to that (no replicas named)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import AlterReassignments, PartitionReassigned
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(
    node: Node, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | None:
    def answer(reply: list[tuple[str, list[PartitionReassigned]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(AlterPartitionReassignmentsResponse(error_code=reply.code, error_message=reply.message))
            return
        responses = [
            ReassignableTopicResponse(
                name, [ReassignablePartitionResponse(each.index, each.error, each.message) for each in reassigned]
            )
            for name, reassigned in reply
        ]
        call.reply(
            AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
            )
        )

    topics = [
        (topic.name, [(partition.partition_index, partition.replicas) for partition in topic.partitions])
        for topic in request.topics
    ]
    node.submit(AlterReassignments(topics, request.allow_replication_factor_change), call.now_ms, answer)
    return None
