"""IncrementalAlterConfigs (key 44), v0–v1: set, delete, append to or subtract from single settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import ConfigChange, ConfigsAltered, IncrementalAlterConfigs
from skidway.wire.schema.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: IncrementalAlterConfigsRequest) -> None:
    asked = [
        ConfigChange(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
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
            IncrementalAlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(
                        result.error, result.message, result.resource_type, result.resource_name
                    )
                    for result in reply
                ]
            )
        )

    node.submit(IncrementalAlterConfigs(asked, request.validate_only), call.now_ms, answer)
