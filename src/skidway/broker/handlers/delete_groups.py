"""DeleteGroups (key 42), v0–v2: groups without members, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.groups.operations import DeleteGroup
from skidway.wire.schema.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
    names = list(dict.fromkeys(request.groups_names))
    response = DeleteGroupsResponse(results=[DeletableGroupResult(name) for name in names])
    missing = len(names)
    if not missing:
        return response

    def take(entry: DeletableGroupResult, reply: ProtocolError | None) -> None:
        nonlocal missing
        entry.error_code = 0 if reply is None else reply.code
        missing -= 1
        if missing == 0:
            call.reply(response)

    for entry in response.results:
        node.groups.submit(
            entry.group_id,
            DeleteGroup(entry.group_id),
            call.now_ms,
            lambda reply, entry=entry: take(entry, reply),  # type: ignore[misc]
        )
    return None
