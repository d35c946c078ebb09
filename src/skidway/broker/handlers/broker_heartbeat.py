"""BrokerHeartbeat (key 63), v0–v2: a broker is alive, and wants to be fenced, unfenced or let go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skidway.broker.forwarding import InnerCall
from skidway.errors import ProtocolError
from skidway.metadata.operations import BrokerHeartbeat, Heartbeat, SuspectBroker
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse | None:
    def answer(reply: Heartbeat | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(BrokerHeartbeatResponse(error_code=reply.code))
        else:
            call.reply(
                BrokerHeartbeatResponse(
                    is_caught_up=reply.is_caught_up,
                    is_fenced=reply.is_fenced,
                    should_shut_down=reply.should_shut_down,
                )
            )

    operation = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
        node.quorum.log.end_offset,
    )
    node.decide(operation, call.now_ms, answer)
    if not isinstance(call, InnerCall):
        # A process that dies takes its connections along: that is known long before its session ends.
        suspicion = SuspectBroker(request.broker_id, request.broker_epoch)
        call.connection.on_closed = partial(_suspect, node, suspicion)
    return None


def _suspect(node: Node, suspicion: SuspectBroker) -> None:
    if node.controls:
        node.decide(suspicion, node.clock.monotonic_ms(), lambda reply: None)
