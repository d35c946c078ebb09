"""ListConfigResources (key 74), v0–v1: what can be configured, by type; v0 knows client metrics only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.metadata.config_keys import ResourceType
from skidway.steps import Steps
from skidway.wire.schema.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

TYPES_SINCE = 1


def handle(node: Services, call: Call, request: ListConfigResourcesRequest) -> Steps[ListConfigResourcesResponse]:
    if call.version < TYPES_SINCE:
        types = [int(ResourceType.CLIENT_METRICS)]
    else:
        types = list(dict.fromkeys(request.resource_types)) or [int(kind) for kind in ResourceType]
    if not set(types) <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()
    for kind in types:
        for name in list(node.image.resources(kind)):
            response.config_resources.append(ConfigResource(name, kind))
            yield None
    return response
