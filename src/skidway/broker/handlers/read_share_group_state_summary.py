"""ReadShareGroupStateSummary (key 87), v0–v1: where a group stands.

Nobody is fenced. Start offset -1 of what nobody has initialised.
For nodes only; `api.share_requests` serves all requests about share-partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.share_requests import serve
from skidway.shares.coordinator.operations import ReadSummary
from skidway.steps import Steps
from skidway.wire.schema.read_share_group_state_summary import ReadShareGroupStateSummaryRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ReadShareGroupStateSummaryRequest) -> Steps[None]:
    yield from serve(node, call, request, ReadSummary)
