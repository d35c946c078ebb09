"""AlterConfigs (key 33), v0–v2: replaces all settings of a resource; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import AlterConfigs, ConfigReplacement, ConfigsAltered
from skidway.wire.schema.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: AlterConfigsRequest) -> None:
    asked = [
        ConfigReplacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]

    def answer(reply: list[ConfigsAltered] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            reply = [
                ConfigsAltered(resource.resource_type, resource.resource_name, reply.code, reply.message)
                for resource in asked
            ]
        call.reply(
            AlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(
                        result.error, result.message, result.resource_type, result.resource_name
                    )
                    for result in reply
                ]
            )
        )

    node.submit(AlterConfigs(asked, request.validate_only), call.now_ms, answer)
