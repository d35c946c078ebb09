"""DescribeCluster (key 60), v0–v2: the brokers and who controls them. Endpoint type 2 (controllers) is not served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from skidway.errors import ErrorCode
from skidway.wire.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

BROKERS = 1


def handle(node: Node, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a broker's endpoint: ask for endpoint type 1 (brokers).",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker.id, broker.endpoints[0].host, broker.endpoints[0].port, broker.rack, broker.fenced
            )
            for broker in node.image.brokers.values()
            if request.include_fenced_brokers or not broker.fenced
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
