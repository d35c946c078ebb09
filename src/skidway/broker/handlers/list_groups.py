"""ListGroups (key 16), v0–v5: all groups of this broker, by state (v4+) and type (v5+) if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import ListedGroup, ListGroups
from skidway.steps import Steps
from skidway.wire.schema import list_groups as wire
from skidway.wire.schema.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

FILTER_NAMES_MAX = 100
"""There are fewer states and types than that; every coordinator looks at all that are named."""


def handle(node: Services, call: Call, request: ListGroupsRequest) -> Steps[ListGroupsResponse | None]:
    if max(len(request.states_filter), len(request.types_filter)) > FILTER_NAMES_MAX:
        return ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(replies: list[list[ListedGroup] | ProtocolError]) -> None:
        answer_later(node.world.slices, call, _response(replies))

    yield from node.groups.submit_to_all(
        lambda: ListGroups(list(request.states_filter), list(request.types_filter)), call.now_ms, answer
    )
    return None


def _response(replies: list[list[ListedGroup] | ProtocolError]) -> Steps[ListGroupsResponse]:
    response = ListGroupsResponse()
    for reply in replies:
        if isinstance(reply, ProtocolError):
            response.error_code = reply.code
            continue
        for group in reply:
            response.groups.append(wire.ListedGroup(group.group_id, group.protocol_type, group.state, group.type))
            yield None
    return response
