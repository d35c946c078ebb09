"""CreateTopics (key 19), v2–v7. Answered when the topics are committed and can be written to.

-1 partitions or replicas mean the broker's defaults. `validate_only` checks everything and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.operations import CreateTopics, NewTopic, TopicCreated
from skidway.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse | None:
    if len(request.topics) > node.limits.topics_per_request_max:
        message = f"{len(request.topics)} topics in one request; the limit is {node.limits.topics_per_request_max}"
        return _refusal(request, ErrorCode.POLICY_VIOLATION, message)

    def answer(reply: list[TopicCreated] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(_refusal(request, reply.code, reply.message))
        else:
            call.reply(CreateTopicsResponse(topics=[_result(created) for created in reply]))

    node.submit(
        CreateTopics([_new_topic(topic) for topic in request.topics], request.validate_only), call.now_ms, answer
    )
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _result(created: TopicCreated) -> CreatableTopicResult:
    return CreatableTopicResult(
        created.name,
        created.id,
        created.error,
        created.message,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in created.configs
        ],
    )


def _refusal(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(topic.name, error_code=code, error_message=message, configs=[])
            for topic in request.topics
        ]
    )
