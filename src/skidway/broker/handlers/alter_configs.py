"""AlterConfigs (key 33), v0–v2: replaces all settings of a resource; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ProtocolError
from skidway.metadata.configs import SETTINGS_MAX
from skidway.metadata.operations import AlterConfigs, ConfigReplacement, ConfigsAltered
from skidway.steps import Steps
from skidway.wire.schema.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AlterConfigsRequest) -> Steps[None]:
    response = AlterConfigsResponse()

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
        lambda part: AlterConfigs([_change(resource) for resource in part], request.validate_only),
        take,
        lambda: call.reply(response),
    )


def _change(resource: AlterConfigsResource) -> ConfigReplacement:
    return ConfigReplacement(
        resource.resource_type,
        resource.resource_name,
        # One more than there may be is enough to refuse them all.
        [(config.name, config.value) for config in resource.configs[: SETTINGS_MAX + 1]],
    )
