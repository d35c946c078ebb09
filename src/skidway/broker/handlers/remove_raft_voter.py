"""RemoveRaftVoter (key 81), v0: a voter leaves the metadata quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: RemoveRaftVoterRequest) -> None:
    def answer(error: ErrorCode, message: str | None) -> None:
        call.reply(RemoveRaftVoterResponse(error_code=error, error_message=message))

    node.quorum.membership.remove(request, call.now_ms, answer)
