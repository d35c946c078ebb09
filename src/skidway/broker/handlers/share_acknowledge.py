"""ShareAcknowledge (key 79), v1–v2.

What a member of a share group says of records that it holds, in its session. Answered when all of it is stored, or
refused; what is said of one partition takes effect as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.reads.leader_hints import ELSEWHERE, address_of, leader_of
from skidway.broker.shares.acknowledging import is_small
from skidway.errors import ProtocolError
from skidway.shares.sessions import Place
from skidway.steps import Steps
from skidway.wire.schema.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PLACES_PER_STEP = 50
LOCK_TOLD_FROM = 2
Told = tuple[Place, ProtocolError | None]


def handle(node: Services, call: Call, request: ShareAcknowledgeRequest) -> Steps[None] | None:
    group = request.group_id or ""

    def reply(outcome: dict[Place, ProtocolError | None] | ProtocolError) -> None:
        if isinstance(outcome, ProtocolError):
            call.reply(ShareAcknowledgeResponse(error_code=outcome.code, error_message=outcome.message))
            return
        response = ShareAcknowledgeResponse()
        if call.version >= LOCK_TOLD_FROM:
            response.acquisition_lock_timeout_ms = node.share_fetches.rules(group).delivery.lock_ms
        if len(outcome) < PLACES_PER_STEP:
            _tell(node, call, outcome.items(), response)
            call.reply(response)
        else:
            answer_later(node.world.slices, call, _tell_in_steps(node, call, list(outcome.items()), response))

    steps = node.share_fetches.acknowledge(call, request, reply)
    if not is_small(request.topics):
        return steps
    for _ in steps:
        pass
    return None


def _tell_in_steps(
    node: Services, call: Call, answers: list[Told], response: ShareAcknowledgeResponse
) -> Steps[ShareAcknowledgeResponse]:
    for at in range(0, len(answers), PLACES_PER_STEP):
        _tell(node, call, answers[at : at + PLACES_PER_STEP], response)
        yield None
    return response


def _tell(node: Services, call: Call, answers: Iterable[Told], response: ShareAcknowledgeResponse) -> None:
    topics = {topic.topic_id: topic for topic in response.responses}
    for place, error in answers:
        topic_id, index = place
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id)
            response.responses.append(topic)
        data = PartitionData(index)
        topic.partitions.append(data)
        if error is None:
            continue
        data.error_code, data.error_message = error.code, error.message
        if error.code in ELSEWHERE:
            leader, epoch = leader_of(node.image, *place)
            data.current_leader = LeaderIdAndEpoch(leader, epoch)
            found = address_of(node.image, leader, call.caller.listener)
            if found is not None and all(endpoint.node_id != leader for endpoint in response.node_endpoints):
                response.node_endpoints.append(NodeEndpoint(*found))
