"""IncrementalAlterConfigs (key 44), v0–v1: set, delete, append to or subtract from single settings.

A request about nothing but log levels is answered by the node that is asked, any other by the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api import log_levels
from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ProtocolError
from skidway.metadata.configs import SETTINGS_MAX
from skidway.metadata.operations import ConfigChange, ConfigsAltered, IncrementalAlterConfigs
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

    def take(part: list[AlterConfigsResource], reply: list[ConfigsAltered] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [
                ConfigsAltered(resource.resource_type, resource.resource_name, reply.code, reply.message)
                for resource in part
            ]
        response.responses += [
            AlterConfigsResourceResponse(result.error, result.message, result.resource_type, result.resource_name)
            for result in reply
        ]

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from parts_of(request.resources, lambda resource: 1 + min(len(resource.configs), SETTINGS_MAX))),
        lambda part: IncrementalAlterConfigs([_change(resource) for resource in part], request.validate_only),
        take,
        lambda: call.reply(response),
    )


def _change(resource: AlterConfigsResource) -> ConfigChange:
    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        # One more than there may be is enough to refuse them all.
        [(config.name, config.config_operation, config.value) for config in resource.configs[: SETTINGS_MAX + 1]],
    )
