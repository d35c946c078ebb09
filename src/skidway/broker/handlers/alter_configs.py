"""AlterConfigs (key 33), v0–v2: replaces all settings of a resource; what is not named goes back to its default."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from skidway.broker.api.in_parts import ask_in_parts, parts_of
from skidway.errors import ProtocolError
from skidway.metadata.configs import SETTINGS_MAX
from skidway.metadata.operations import AlterConfigs, ConfigReplacement, ConfigsAltered, IncrementalAlterConfigs
from skidway.steps import Steps
from skidway.wire.schema import incremental_alter_configs as incremental
from skidway.wire.schema.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


Resource = TypeVar("Resource", AlterConfigsResource, incremental.AlterConfigsResource)


def handle(node: Services, call: Call, request: AlterConfigsRequest) -> Steps[None]:
    response = AlterConfigsResponse()
    yield from alter_in_parts(
        node,
        call,
        request.resources,
        lambda part: AlterConfigs([_change(resource) for resource in part], request.validate_only),
        lambda *answer: response.responses.append(AlterConfigsResourceResponse(*answer)),
        lambda: call.reply(response),
    )


def alter_in_parts(
    node: Services,
    call: Call,
    resources: list[Resource],
    operation: Callable[[list[Resource]], AlterConfigs | IncrementalAlterConfigs],
    take: Callable[[int, str | None, int, str], object],
    done: Callable[[], None],
) -> Steps[None]:
    """Both requests that alter configs: an `operation` for some resources at a time, an answer to each of them."""

    def take_all(part: list[Resource], reply: list[ConfigsAltered] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            for resource in part:
                take(reply.code, reply.message, resource.resource_type, resource.resource_name)
            return
        for result in reply:
            take(result.error, result.message, result.resource_type, result.resource_name)

    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from parts_of(resources, lambda resource: 1 + min(len(resource.configs), SETTINGS_MAX))),
        operation,
        take_all,
        done,
    )


def _change(resource: AlterConfigsResource) -> ConfigReplacement:
    return ConfigReplacement(
        resource.resource_type,
        resource.resource_name,
        # One more than there may be is enough to refuse them all.
        [(config.name, config.value) for config in resource.configs[: SETTINGS_MAX + 1]],
    )
