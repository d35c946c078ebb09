"""CreatePartitions (key 37), v0–v3: `count` is the new number of partitions. Answered when they can be written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import CreatePartitions, MorePartitions, PartitionsCreated
from skidway.wire.schema.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: CreatePartitionsRequest) -> None:
    asked = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]

    def answer(reply: list[PartitionsCreated] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [PartitionsCreated(topic.name, reply.code, reply.message) for topic in asked]
        call.reply(
            CreatePartitionsResponse(
                results=[CreatePartitionsTopicResult(result.name, result.error, result.message) for result in reply]
            )
        )

    node.submit(CreatePartitions(asked, request.validate_only), call.now_ms, answer)
