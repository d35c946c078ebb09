"""AddRaftVoter (key 80), v0–v1: an observer that has caught up, and has the role controller, becomes a voter of
the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AddRaftVoterRequest) -> None:
    def answer(error: ErrorCode, message: str | None) -> None:
        call.reply(AddRaftVoterResponse(error_code=error, error_message=message))

    node.quorum.membership.add(request, call.now_ms, answer)
