"""CreatePartitions (key 37), v0–v3: `count` is the new number of partitions. Answered when they can be written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import CreatePartitions, MorePartitions, PartitionsCreated
from skidway.steps import Steps
from skidway.wire.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: CreatePartitionsRequest) -> Steps[None]:
    response = CreatePartitionsResponse()

    def take(part: list[CreatePartitionsTopic], reply: list[PartitionsCreated] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [PartitionsCreated(topic.name, reply.code, reply.message) for topic in part]
        response.results += [CreatePartitionsTopicResult(result.name, result.error, result.message) for result in reply]

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from parts_of(request.topics, lambda topic: max(1, topic.count))),
        lambda part: CreatePartitions([_more(topic) for topic in part], request.validate_only),
        take,
        lambda: call.reply(response),
    )


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    return MorePartitions(topic.name, topic.count, assignments)
