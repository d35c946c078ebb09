"""ListConfigResources (key 74), v0–v1: what can be configured, by type; v0 knows client metrics only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.metadata.config_keys import ResourceType
from skidway.wire.schema.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

TYPES_SINCE = 1


def handle(node: Node, call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if call.version < TYPES_SINCE:
        types = [int(ResourceType.CLIENT_METRICS)]
    else:
        types = list(dict.fromkeys(request.resource_types)) or [int(kind) for kind in ResourceType]
    if not all(kind in list(ResourceType) for kind in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in types for name in node.image.resources(kind)]
    )
