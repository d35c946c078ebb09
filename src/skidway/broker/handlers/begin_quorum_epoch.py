"""BeginQuorumEpoch (key 53), v0–v1: a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.wire.schema.begin_quorum_epoch import BeginQuorumEpochRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.wire.message import Message


def handle(node: Services, call: Call, request: BeginQuorumEpochRequest) -> Message | None:
    return node.quorum.answer(call, request)
