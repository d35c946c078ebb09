"""ListPartitionReassignments (key 46), v0: which replicas are on their way to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.api.in_parts import ask_in_parts, join_topics, nested_parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import ListReassignments, Reassignment
from skidway.steps import Steps
from skidway.wire.schema.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ListPartitionReassignmentsRequest) -> Steps[None]:
    response = ListPartitionReassignmentsResponse()
    ongoing: list[tuple[str, list[Reassignment]]] = []

    def take(_: object, reply: list[tuple[str, list[Reassignment]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code, response.error_message = reply.code, reply.message
        else:
            ongoing.extend(reply)

    def finish() -> Steps[ListPartitionReassignmentsResponse]:
        for name, results in join_topics(ongoing) if not response.error_code else ():
            found = [
                OngoingPartitionReassignment(each.index, each.replicas, each.adding, each.removing) for each in results
            ]
            response.topics.append(OngoingTopicReassignment(name, found))
            yield None
        return response

    parts: list[list[tuple[str, list[int]]] | None] = [None]
    if request.topics is not None:
        parts = [*(yield from nested_parts_of((topic.name, topic.partition_indexes) for topic in request.topics))]
    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        parts,
        ListReassignments,
        take,
        lambda: answer_later(node.world.slices, call, finish()),
    )
