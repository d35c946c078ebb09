"""CreateTopics (key 19), v2–v7. Answered when the topics are committed and can be written to.

-1 partitions or replicas mean the broker's defaults. `validate_only` checks everything and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.operations import CreateTopics, NewTopic, TopicCreated
from skidway.steps import Steps
from skidway.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse | None]:
    if len(request.topics) > node.world.limits.topics_per_request_max:
        message = (
            f"{len(request.topics)} topics in one request; the limit is {node.world.limits.topics_per_request_max}"
        )
        return _refusal(request.topics, ErrorCode.POLICY_VIOLATION, message)
    response = CreateTopicsResponse()

    def take(part: list[CreatableTopic], reply: list[TopicCreated] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.topics += _refusal(part, reply.code, reply.message).topics
        else:
            response.topics += [_result(created) for created in reply]

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from parts_of(request.topics, _weight)),
        lambda part: CreateTopics([_new_topic(topic) for topic in part], request.validate_only),
        take,
        lambda: call.reply(response),
    )
    return None


def _weight(topic: CreatableTopic) -> int:
    return max(1, topic.num_partitions, len(topic.assignments)) + len(topic.configs)


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


def _refusal(topics: list[CreatableTopic], code: ErrorCode, message: str | None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(topic.name, error_code=code, error_message=message, configs=[]) for topic in topics
        ]
    )
