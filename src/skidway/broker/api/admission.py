"""The one place where an API of nodes is refused to a caller that is not a node.

Its answer is CLUSTER_AUTHORIZATION_FAILED, as in Kafka, and no handler is entered. Who counts as a node is decided
where the caller is made (`Caller.is_node`): everybody does, as long as there is no authentication.
"""

from __future__ import annotations

from typing import Any

from skidway.broker.api.call import Call, Handle
from skidway.broker.services import Services
from skidway.errors import ErrorCode
from skidway.wire.message import Message
from skidway.wire.registry import api


def nodes_only(handle: Handle) -> Handle:
    """The handler of an API of nodes, for any caller."""

    def handle_or_refuse(node: Services, call: Call, request: Any) -> Any:
        return handle(node, call, request) if call.caller.is_node else not_a_node(call)

    return handle_or_refuse


def not_a_node(call: Call) -> Message:
    """The answer to a request that only a node may send: all these responses have a code of their own."""
    response: Message = api(call.route.key).response.message(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return response
