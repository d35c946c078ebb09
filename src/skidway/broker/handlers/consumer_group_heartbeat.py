"""ConsumerGroupHeartbeat (key 68), v0–v1: everything a member of the new protocol says and is told (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.groups.bounds import check_names, check_subscription, client_name
from skidway.groups.consumer.operations import ConsumerHeartbeat, ConsumerHeartbeatReply
from skidway.wire.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse | None:
    try:
        check_names(node.world.limits, request.member_id, request.instance_id, request.rack_id)
        check_subscription(node.world.limits, request.subscribed_topic_names or ())
    except ProtocolError as refusal:
        return _response(refusal)
    owned = None
    if request.topic_partitions is not None:
        owned = [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
    operation = ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        client_name(call.caller.client_id),
        call.caller.shown_host,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
        call.version,
    )

    def answer(reply: ConsumerHeartbeatReply | ProtocolError) -> None:
        call.reply(_response(reply))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


def _response(reply: ConsumerHeartbeatReply | ProtocolError) -> ConsumerGroupHeartbeatResponse:
    if isinstance(reply, ProtocolError):
        return ConsumerGroupHeartbeatResponse(error_code=reply.code, error_message=reply.message)
    response = ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.assignment is not None:
        response.assignment = Assignment([TopicPartitions(topic, partitions) for topic, partitions in reply.assignment])
    return response
