"""UnregisterBroker (key 64), v0: a broker that is gone for good is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import UnregisterBroker
from skidway.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse | None:
    def answer(reply: ProtocolError | None) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(UnregisterBrokerResponse(error_code=reply.code, error_message=reply.message))
        else:
            call.reply(UnregisterBrokerResponse())

    node.controller.carry_out(UnregisterBroker(request.broker_id), call.now_ms, answer)
    return None
