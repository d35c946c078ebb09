"""BrokerHeartbeat (key 63), v0–v2: a broker is alive, and wants to be fenced, unfenced or let go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import BrokerHeartbeat, Heartbeat, SuspectBroker
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse | None:
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
    node.controller.commit(operation, call.now_ms, answer)
    # A process that dies takes its connections along: that is known long before its session ends.
    call.when_disconnected(partial(_suspect, node, SuspectBroker(request.broker_id, request.broker_epoch)))
    return None


def _suspect(node: Services, suspicion: SuspectBroker) -> None:
    if node.controller.is_here:
        node.controller.commit(suspicion, node.world.clock.monotonic_ms(), lambda reply: None)
