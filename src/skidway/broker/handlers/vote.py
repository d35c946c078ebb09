"""Vote (key 52), v0–v2: a candidate of the metadata quorum asks for this node's vote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.wire.schema.vote import VoteRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.wire.message import Message


def handle(node: Services, call: Call, request: VoteRequest) -> Message | None:
    return node.quorum.answer(call, request)
