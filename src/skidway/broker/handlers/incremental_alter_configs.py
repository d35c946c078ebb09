"""IncrementalAlterConfigs (key 44), v0–v1: set, delete, append to or subtract from single settings.

A request about nothing but log levels is answered by the node that is asked, any other by the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api import log_levels
from skidway.broker.handlers.alter_configs import alter_in_parts
from skidway.metadata.configs import SETTINGS_MAX
from skidway.metadata.operations import ConfigChange, IncrementalAlterConfigs
from skidway.steps import Steps
from skidway.wire.schema.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(
    node: Services, call: Call, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse] | Steps[None]:
    if log_levels.alters_only_log_levels(request):
        return log_levels.alter(node, request)
    return _alter_in_parts(node, call, request)


def _alter_in_parts(node: Services, call: Call, request: IncrementalAlterConfigsRequest) -> Steps[None]:
    response = IncrementalAlterConfigsResponse()
    yield from alter_in_parts(
        node,
        call,
        request.resources,
        lambda part: IncrementalAlterConfigs([_change(resource) for resource in part], request.validate_only),
        lambda *answer: response.responses.append(AlterConfigsResourceResponse(*answer)),
        lambda: call.reply(response),
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        # One more than there may be is enough to refuse them all.
        [(config.name, config.config_operation, config.value) for config in resource.configs[: SETTINGS_MAX + 1]],
    )
