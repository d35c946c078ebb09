"""LeaveGroup (key 13), v0–v5: members go; from v3 several at once, and static ones by their instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import LeaveGroup, Leaving
from skidway.steps import Steps
from skidway.wire.release import release
from skidway.wire.schema.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

BATCHED_SINCE = 3


def handle(node: Services, call: Call, request: LeaveGroupRequest) -> Steps[None]:
    members = request.members if call.version >= BATCHED_SINCE else [MemberIdentity(request.member_id)]
    response = LeaveGroupResponse()

    def take(part: list[MemberIdentity], reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code = reply.code
        elif call.version < BATCHED_SINCE:
            response.error_code = reply[0]
        else:
            response.members += [
                MemberResponse(member.member_id, member.group_instance_id, code)
                for member, code in zip(part, reply, strict=True)
            ]

    def done() -> None:
        given_up: list[MemberResponse] = []
        if response.error_code:
            given_up, response.members = response.members, given_up
        call.reply(response)
        node.world.slices.begin_unwatched(release(given_up))

    yield from ask_in_parts(
        lambda operation, answer: node.groups.submit(request.group_id, operation, call.now_ms, answer),
        (yield from parts_of(members)),
        lambda part: LeaveGroup(
            request.group_id, [Leaving(member.member_id, member.group_instance_id) for member in part]
        ),
        take,
        done,
    )
