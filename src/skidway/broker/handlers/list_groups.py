"""ListGroups (key 16), v0–v5: all groups of this broker, by state (v4+) and type (v5+) if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.groups.operations import ListedGroup, ListGroups
from skidway.wire.schema import list_groups as wire
from skidway.wire.schema.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: ListGroupsRequest) -> None:
    def answer(replies: list[list[ListedGroup] | ProtocolError]) -> None:
        response = ListGroupsResponse()
        for reply in replies:
            if isinstance(reply, ProtocolError):
                response.error_code = reply.code
            else:
                response.groups += [
                    wire.ListedGroup(group.group_id, group.protocol_type, group.state, group.type) for group in reply
                ]
        call.reply(response)

    node.groups.submit_to_all(
        lambda: ListGroups(list(request.states_filter), list(request.types_filter)), call.now_ms, answer
    )
