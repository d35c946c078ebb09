"""Heartbeat (key 12), v0–v4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.groups.operations import Heartbeat
from skidway.wire.schema.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: HeartbeatRequest) -> None:
    operation = Heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)

    def answer(reply: ProtocolError | None) -> None:
        call.reply(HeartbeatResponse(error_code=0 if reply is None else reply.code))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)
