"""AlterPartitionReassignments (key 45), v0–v1: replicas to other brokers, or an end to that (no replicas named)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.api.in_parts import ask_in_parts, join_topics, nested_parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import AlterReassignments, PartitionReassigned
from skidway.steps import Steps
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AlterPartitionReassignmentsRequest) -> Steps[None]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    reassigned: list[tuple[str, list[PartitionReassigned]]] = []

    def take(_: object, reply: list[tuple[str, list[PartitionReassigned]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code, response.error_message = reply.code, reply.message
        else:
            reassigned.extend(reply)

    def finish() -> Steps[AlterPartitionReassignmentsResponse]:
        for name, results in join_topics(reassigned) if not response.error_code else ():
            found = [ReassignablePartitionResponse(each.index, each.error, each.message) for each in results]
            response.responses.append(ReassignableTopicResponse(name, found))
            yield None
        return response

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from nested_parts_of((topic.name, topic.partitions) for topic in request.topics)),
        lambda part: AlterReassignments(
            [(name, [(each.partition_index, each.replicas) for each in partitions]) for name, partitions in part],
            request.allow_replication_factor_change,
        ),
        take,
        lambda: answer_later(node.world.slices, call, finish()),
    )
