"""EndQuorumEpoch (key 54), v0–v1: the leader of the metadata quorum steps down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.wire.schema.end_quorum_epoch import EndQuorumEpochRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.wire.message import Message


def handle(node: Services, call: Call, request: EndQuorumEpochRequest) -> Message | None:
    return node.quorum.answer(call, request)
