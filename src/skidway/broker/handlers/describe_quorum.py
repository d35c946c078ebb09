"""DescribeQuorum (key 55), v0–v2: who leads the metadata quorum, and how far its voters and observers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.quorum.membership import describe
from skidway.wire.schema.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return describe(node.quorum.quorum, request, call.now_ms, node.world.clock.wall_ms())
