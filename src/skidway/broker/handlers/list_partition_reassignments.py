"""ListPartitionReassignments (key 46), v0: which replicas are on their way to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import ListReassignments, Reassignment
from skidway.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(
    node: Node, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | None:
    def answer(reply: list[tuple[str, list[Reassignment]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(ListPartitionReassignmentsResponse(error_code=reply.code, error_message=reply.message))
            return
        topics = [
            OngoingTopicReassignment(
                name,
                [
                    OngoingPartitionReassignment(each.index, each.replicas, each.adding, each.removing)
                    for each in ongoing
                ],
            )
            for name, ongoing in reply
        ]
        call.reply(ListPartitionReassignmentsResponse(topics=topics))

    asked = request.topics
    topics = None if asked is None else [(topic.name, topic.partition_indexes) for topic in asked]
    node.submit(ListReassignments(topics), call.now_ms, answer)
    return None
