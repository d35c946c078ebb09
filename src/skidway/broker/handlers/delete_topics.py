"""DeleteTopics (key 20), v1–v6: by name, from v6 on also by id. Answered when the removal is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import DeleteTopics, TopicDeleted
from skidway.wire.schema.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

NO_ID = bytes(16)
IDS_SINCE = 6


def handle(node: Node, call: Call, request: DeleteTopicsRequest) -> None:
    asked: list[tuple[str | None, bytes]]
    if call.version >= IDS_SINCE:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, NO_ID) for name in request.topic_names]

    def answer(reply: list[TopicDeleted] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [TopicDeleted(name, topic_id, reply.code, reply.message) for name, topic_id in asked]
        call.reply(
            DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(deleted.name, deleted.id, deleted.error, deleted.message) for deleted in reply
                ]
            )
        )

    node.submit(DeleteTopics(asked), call.now_ms, answer)
