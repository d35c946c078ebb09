"""FetchSnapshot (key 59), v0–v1: a piece of the newest snapshot of the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.wire.schema.fetch_snapshot import FetchSnapshotRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.wire.message import Message


def handle(node: Services, call: Call, request: FetchSnapshotRequest) -> Message | None:
    return node.quorum.answer(call, request)
