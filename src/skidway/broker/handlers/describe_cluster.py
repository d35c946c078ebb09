"""DescribeCluster (key 60), v0–v2: the brokers and who controls them.

Brokers have the addresses of the listener by which the client came; those without such a listener are left out.
Not served: endpoint type 2 (controllers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from skidway.errors import ErrorCode
from skidway.wire.schema.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

BROKERS = 1


def handle(node: Services, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is the endpoint of a broker: use endpoint type 1 (brokers).",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.controller.node_id,
        brokers=[
            DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker in node.image.brokers.values()
            if (request.include_fenced_brokers or not broker.fenced)
            and (endpoint := broker.endpoint(call.caller.listener)) is not None
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
