"""ShareGroupHeartbeat (key 76), v1: everything a member of a share group says and is told (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.groups.bounds import check_names, check_subscription, client_name
from skidway.groups.share.operations import ShareHeartbeat, ShareHeartbeatReply
from skidway.shares.queue_groups import check_group
from skidway.wire.schema.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse | None:
    try:
        check_group(request.group_id)
        check_names(node.world.limits, request.rack_id)
        check_subscription(node.world.limits, request.subscribed_topic_names or ())
    except ProtocolError as refusal:
        return _response(refusal)
    operation = ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        client_name(call.caller.client_id),
        call.caller.shown_host,
        request.subscribed_topic_names,
    )

    def answer(reply: ShareHeartbeatReply | ProtocolError) -> None:
        call.reply(_response(reply))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


def _response(reply: ShareHeartbeatReply | ProtocolError) -> ShareGroupHeartbeatResponse:
    if isinstance(reply, ProtocolError):
        return ShareGroupHeartbeatResponse(error_code=reply.code, error_message=reply.message)
    response = ShareGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
    )
    if reply.assignment is not None:
        response.assignment = Assignment([TopicPartitions(topic, partitions) for topic, partitions in reply.assignment])
    return response
