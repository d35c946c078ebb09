"""DeleteTopics (key 20), v1–v6: by name, from v6 on also by id. Answered when the removal is committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import DeleteTopics, TopicDeleted
from skidway.steps import Steps
from skidway.wire.schema.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

NO_ID = bytes(16)
IDS_SINCE = 6


def handle(node: Services, call: Call, request: DeleteTopicsRequest) -> Steps[None]:
    asked: Iterable[tuple[str | None, bytes]] = ((name, NO_ID) for name in request.topic_names)
    if call.version >= IDS_SINCE:
        asked = ((topic.name, topic.topic_id) for topic in request.topics)
    response = DeleteTopicsResponse()

    def take(part: list[tuple[str | None, bytes]], reply: list[TopicDeleted] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [TopicDeleted(name, topic_id, reply.code, reply.message) for name, topic_id in part]
        response.responses += [
            DeletableTopicResult(deleted.name, deleted.id, deleted.error, deleted.message) for deleted in reply
        ]

    def weigh(entry: tuple[str | None, bytes]) -> int:
        name, topic_id = entry
        image = node.image
        topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        return 1 if topic is None else len(topic.partitions)

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from parts_of(asked, weigh)),
        DeleteTopics,
        take,
        lambda: call.reply(response),
    )
