"""DescribeQuorum (key 55), v0–v2: who leads the metadata quorum, and how far its voters and observers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.quorum.membership import describe
from skidway.wire.schema.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return describe(node.quorum.quorum, request, call.now_ms, node.clock.wall_ms())
