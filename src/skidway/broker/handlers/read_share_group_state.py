"""ReadShareGroupState (key 84), v0: a leader begins to deliver.

What is stored, and from now on leaders of older epochs are fenced (FENCED_LEADER_EPOCH).
For nodes only; `api.share_requests` serves all requests about share-partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.share_requests import serve
from skidway.shares.coordinator.operations import Read
from skidway.steps import Steps
from skidway.wire.schema.read_share_group_state import ReadShareGroupStateRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ReadShareGroupStateRequest) -> Steps[None]:
    yield from serve(node, call, request, Read)
