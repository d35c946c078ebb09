"""InitializeShareGroupState (key 83), v0: a group begins to deliver from partitions, or begins anew.

In a state epoch that is known nothing happens; an older one is fenced (FENCED_STATE_EPOCH).
For nodes only; `api.share_requests` serves all requests about share-partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.share_requests import serve
from skidway.shares.coordinator.operations import Initialize
from skidway.steps import Steps
from skidway.wire.schema.initialize_share_group_state import InitializeShareGroupStateRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: InitializeShareGroupStateRequest) -> Steps[None]:
    yield from serve(node, call, request, Initialize)
