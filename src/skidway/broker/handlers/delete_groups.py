"""DeleteGroups (key 42), v0–v2: groups without members, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.many_groups import ask_each, each_once
from skidway.errors import ProtocolError
from skidway.groups.operations import DeleteGroup
from skidway.steps import Steps
from skidway.wire.schema.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DeleteGroupsRequest) -> Steps[None]:
    response = DeleteGroupsResponse()
    for name in each_once(request.groups_names):
        response.results.append(DeletableGroupResult(name))
        yield None

    def take(entry: DeletableGroupResult, reply: ProtocolError | None) -> None:
        entry.error_code = 0 if reply is None else reply.code

    yield from ask_each(
        node,
        response.results,
        lambda entry: DeleteGroup(entry.group_id),
        take,
        lambda: call.reply(response),
    )
