"""WriteShareGroupState (key 85), v0–v1: a leader stores what was settled.

Of the last leader that has read, in the state epoch that it read; anybody else is fenced.
For nodes only; `api.share_requests` serves all requests about share-partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.share_requests import serve
from skidway.shares.coordinator.operations import Write
from skidway.steps import Steps
from skidway.wire.schema.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: WriteShareGroupStateRequest) -> Steps[None]:
    yield from serve(node, call, request, Write)
