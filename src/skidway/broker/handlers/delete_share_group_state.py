"""DeleteShareGroupState (key 86), v0: a group is deleted, or its offsets of a topic.

Also of what is not there.
For nodes only; `api.share_requests` serves all requests about share-partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.share_requests import serve
from skidway.shares.coordinator.operations import Delete
from skidway.steps import Steps
from skidway.wire.schema.delete_share_group_state import DeleteShareGroupStateRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DeleteShareGroupStateRequest) -> Steps[None]:
    yield from serve(node, call, request, Delete)
