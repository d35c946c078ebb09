"""DeleteGroups (key 42), v0–v2: groups without members, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.many_groups import ask_each
from skidway.errors import ProtocolError
from skidway.groups.operations import DeleteGroup
from skidway.wire.schema.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: DeleteGroupsRequest) -> None:
    names = list(dict.fromkeys(request.groups_names))
    response = DeleteGroupsResponse(results=[DeletableGroupResult(name) for name in names])

    def take(entry: DeletableGroupResult, reply: ProtocolError | None) -> None:
        entry.error_code = 0 if reply is None else reply.code

    ask_each(
        node,
        call,
        [(entry.group_id, entry) for entry in response.results],
        lambda entry: DeleteGroup(entry.group_id),
        take,
        lambda: call.reply(response),
    )
